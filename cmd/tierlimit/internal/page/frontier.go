package page

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/study"
	"github.com/tierlimit/tierlimit/limit"
)

// family is a group of configurations that differ in one parameter only: a line in the frontier.
type family struct {
	name  string
	hue   hue
	mark  string // the shape as the legend shows it
	shape draw.GlyphDrawer
	aside vg.Point // offset of a label from its point, so that families' labels do not overlap
	has   func(study.Point) bool
	label func(study.Point) string
}

var families = []family{
	{"sliding log", ink, "■", draw.BoxGlyph{}, vg.Point{X: 6, Y: 4}, func(p study.Point) bool { return p.Algorithm.Same(limit.SlidingLog()) }, func(study.Point) string { return "log" }},
	{"counter, strict", blue, "●", draw.CircleGlyph{}, vg.Point{X: 6, Y: 4}, counters(limit.Strict), k},
	{"counter, estimate", green, "△", draw.TriangleGlyph{}, vg.Point{X: -28, Y: -12}, counters(limit.Estimate), k},
	{"GCRA", orange, "▲", draw.PyramidGlyph{}, vg.Point{X: 6, Y: -9}, func(p study.Point) bool { return p.Algorithm.Same(limit.GCRA()) }, func(p study.Point) string { return fmt.Sprintf("b=%d", p.Limit.Burst()) }},
	{"fixed window", red, "□", draw.SquareGlyph{}, vg.Point{X: -12, Y: 8}, func(p study.Point) bool { return p.Algorithm.Same(limit.FixedWindow()) }, func(study.Point) string { return "fixed" }},
}

func counters(r limit.Rounding) func(study.Point) bool {
	return func(p study.Point) bool { return p.Algorithm.Buckets() > 0 && p.Algorithm.Rounding() == r }
}

// labelled are the numbers of sub-windows that are labeled in the picture. Labels for all of them would
// hide each other.
var labelled = []int{1, 4, 16, 60, limit.MaxBuckets}

func k(p study.Point) string {
	if !slices.Contains(labelled, p.Algorithm.Buckets()) {
		return ""
	}
	return fmt.Sprintf("k=%d", p.Algorithm.Buckets())
}

// Frontier plots bytes per key against wrong decisions, with one point per configuration.
func Frontier(points []study.Point, chosen study.Point) (Picture, error) {
	words := fmt.Sprintf("Bytes per key against wrong decisions of %d configurations; the chosen one, %v, takes %.0f bytes and decides %s of the requests unlike the exact log.",
		len(points), chosen.Candidate, chosen.BytesPerKey, percent(chosen.WrongPart()))
	legend := []Meaning{accent.means("◯", "chosen: "+chosen.Candidate.String())}
	for _, fam := range families {
		legend = append(legend, fam.hue.means(fam.mark, fam.name))
	}
	return draws(words, legend, func(f format) (*plot.Plot, error) {
		p := newPlot("bytes of Redis's memory per key", "requests decided unlike the exact log")
		floor := noneAt(points)
		// Logarithms are drawn on linear axes. On logarithmic axes, the library leaves room for the
		// axis's label in the wrong place.
		at := func(point study.Point) plotter.XY {
			return plotter.XY{X: math.Log10(point.BytesPerKey), Y: math.Log10(max(100*point.WrongPart(), floor))}
		}
		p.Add(grid())
		for _, fam := range families {
			if err := fam.draw(p, f, points, at); err != nil {
				return nil, err
			}
		}
		ring, err := plotter.NewScatter(plotter.XYs{at(chosen)})
		if err != nil {
			return nil, err
		}
		ring.GlyphStyle = draw.GlyphStyle{Color: accent, Radius: 8, Shape: draw.RingGlyph{}}
		p.Add(ring)
		room := 0.05 // for the last point's label
		if f.narrow {
			room = 0.1
		}
		p.X.Min, p.X.Max = p.X.Min-0.03, p.X.Max+room
		p.Y.Min, p.Y.Max = math.Log10(floor)-0.1, p.Y.Max+0.15
		p.X.Tick.Marker = logarithmic(byteTicks)
		p.Y.Tick.Marker = logarithmic(func(_, high float64) []plot.Tick { return errorTicks(floor, high) })
		return p, nil
	})
}

// noneAt returns the value, in percent, at which a configuration without any wrong decision is drawn on
// the logarithmic axis: below all others.
func noneAt(points []study.Point) float64 {
	least := 1.0
	for _, p := range points {
		if part := 100 * p.WrongPart(); part > 0 {
			least = min(least, part)
		}
	}
	return least / 2
}

func (fam family) draw(p *plot.Plot, f format, points []study.Point, at func(study.Point) plotter.XY) error {
	var own []study.Point
	for _, point := range points {
		if fam.has(point) {
			own = append(own, point)
		}
	}
	if len(own) == 0 {
		return nil
	}
	var xys plotter.XYs
	for _, point := range own {
		xys = append(xys, at(point))
	}
	line, dots, err := plotter.NewLinePoints(xys)
	if err != nil {
		return err
	}
	line.LineStyle = draw.LineStyle{Color: fam.hue, Width: 1}
	dots.GlyphStyle = draw.GlyphStyle{Color: fam.hue, Radius: 3.5, Shape: fam.shape}
	p.Add(line, dots)
	return fam.labels(p, f, own, at)
}

// labels adds labels to the points.
func (fam family) labels(p *plot.Plot, f format, own []study.Point, at func(study.Point) plotter.XY) error {
	var named plotter.XYLabels
	for i, point := range own {
		label := fam.label(point)
		if f.narrow && i > 0 && i < len(own)-1 && point.Algorithm.Buckets() != limit.DefaultBuckets {
			label = ""
		}
		if label == "" {
			continue
		}
		named.XYs, named.Labels = append(named.XYs, at(point)), append(named.Labels, label)
	}
	labels, err := plotter.NewLabels(named)
	if err != nil {
		return err
	}
	labels.Offset = fam.aside
	for i := range labels.TextStyle {
		labels.TextStyle[i] = style(fam.hue, 9)
	}
	p.Add(labels)
	return nil
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical = draw.LineStyle{Color: shade, Width: 0.5}
	g.Horizontal = g.Vertical
	return g
}

// logarithmic moves ticks of values to where the values' logarithms are drawn.
func logarithmic(of func(low, high float64) []plot.Tick) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := of(math.Pow(10, low), math.Pow(10, high))
		for i := range ticks {
			ticks[i].Value = math.Log10(ticks[i].Value)
		}
		return ticks
	})
}

// byteTicks are at 1, 1.5, 2, 3, 5 and 7 times the powers of ten. Over more than a factor of 8, only 1,
// 2 and 5 times are labeled.
func byteTicks(low, high float64) (ticks []plot.Tick) {
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, n := range []float64{1, 1.5, 2, 3, 5, 7} {
			if v := n * power; v >= low && v <= high {
				label := fmt.Sprintf("%g", v)
				if v >= 10_000 {
					label = fmt.Sprintf("%gk", v/1000)
				}
				if n != 1 && n != 2 && n != 5 && high/low > 8 {
					label = ""
				}
				ticks = append(ticks, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return ticks
}

// errorTicks are at none, and above it at 1, 2 and 5 times the powers of ten.
func errorTicks(none, high float64) []plot.Tick {
	ticks := []plot.Tick{{Value: none, Label: "none"}}
	for power := math.Pow(10, math.Floor(math.Log10(none))); power <= high; power *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if v := n * power; v > none*1.5 && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.4g %%", v)})
			}
		}
	}
	return ticks
}

func percent(part float64) string { return fmt.Sprintf("%.3g %%", 100*part) }
