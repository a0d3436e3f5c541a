package page

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/study"
)

// WorstWindow plots what led to a point's fullest window: for each request around the window, the
// number of units that had been granted in the window that ends with the request.
func WorstWindow(w study.Window) (Picture, error) {
	words := fmt.Sprintf("Units granted in the last window, request by request, around the fullest window of %v: it held %d, the limit is %d.", w.Candidate, w.Worst.Units, w.Limit.Quota())
	legend := []Meaning{blue.means("●", "granted"), orange.means("▲", "denied"), red.means("━", "limit"), faint.means("■", "shaded: the window")}
	if len(w.Boundaries) > 0 {
		legend = append(legend, faint.means("│", "where the algorithm's own windows begin"))
	}
	return draws(words, legend, func(f format) (*plot.Plot, error) {
		p := newPlot("seconds from the window's end", "units granted in the window that ends here")
		seconds := func(at int64) float64 { return float64(at-w.End.UnixMicro()) / 1e6 }
		top := float64(max(w.Worst.Units, w.Limit.Quota())) * 1.3
		low, high := seconds(w.Start.UnixMicro())*1.6, -seconds(w.Start.UnixMicro())/5

		if err := shaded(p, seconds(w.Start.UnixMicro()), top); err != nil {
			return nil, err
		}
		for _, at := range w.Boundaries {
			if x := seconds(at); x >= low && x <= high {
				if err := straight(p, x, 0, x, top, faint, 0.5); err != nil {
					return nil, err
				}
			}
		}
		quota := float64(w.Limit.Quota())
		if err := straight(p, low, quota, high, quota, red, 1.2); err != nil {
			return nil, err
		}
		for _, kind := range []struct {
			allowed bool
			hue     hue
			shape   draw.GlyphDrawer
		}{{true, blue, draw.CircleGlyph{}}, {false, orange, draw.PyramidGlyph{}}} {
			var xys plotter.XYs
			for _, m := range w.Moments {
				if x := seconds(m.At); m.Allowed == kind.allowed && x >= low && x <= high {
					xys = append(xys, plotter.XY{X: x, Y: float64(m.Held)})
				}
			}
			if len(xys) == 0 {
				continue
			}
			dots, err := plotter.NewScatter(thinned(xys))
			if err != nil {
				return nil, err
			}
			dots.GlyphStyle = draw.GlyphStyle{Color: kind.hue, Radius: vg.Points(3), Shape: kind.shape}
			p.Add(dots)
		}
		p.Y.Tick.Marker = plot.TickerFunc(countTicks)
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, 0, top
		return p, nil
	})
}

// shaded marks the window itself with a shaded area.
func shaded(p *plot.Plot, start, top float64) error {
	area, err := plotter.NewPolygon(plotter.XYs{{X: start, Y: 0}, {X: 0, Y: 0}, {X: 0, Y: top}, {X: start, Y: top}})
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = shade, 0
	p.Add(area)
	return nil
}

func straight(p *plot.Plot, x0, y0, x1, y1 float64, h hue, width vg.Length) error {
	line, err := plotter.NewLine(plotter.XYs{{X: x0, Y: y0}, {X: x1, Y: y1}})
	if err != nil {
		return err
	}
	line.LineStyle = draw.LineStyle{Color: h, Width: width}
	p.Add(line)
	return nil
}

// maxDots is the largest number of dots. It keeps the page small; more dots could not be told apart.
const maxDots = 600

func thinned(xys plotter.XYs) plotter.XYs {
	if len(xys) <= maxDots {
		return xys
	}
	var some plotter.XYs
	for i := range maxDots {
		some = append(some, xys[i*len(xys)/maxDots])
	}
	return some
}
