package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tierlimit/tierlimit/bench/internal/chart"
)

// The looks of the curves. The shapes make them distinguishable without colors.
var (
	colors = []color.Color{chart.Blue, chart.Orange, chart.Green, chart.Red, chart.Violet}
	shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PlusGlyph{}, draw.CrossGlyph{}}
)

// drawInto draws each picture into its own file in a folder.
func drawInto(dir string, pictures []picture) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range pictures {
		text, err := pictures[i].svg()
		if err != nil {
			return fmt.Errorf("%s: %w", pictures[i].file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, pictures[i].file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p *picture) svg() (string, error) {
	drawing := newPlot(p)
	for i, c := range p.curves {
		points := make(plotter.XYs, len(c.points))
		for j, at := range c.points {
			points[j] = plotter.XY{X: at.x, Y: at.y}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return "", err
		}
		line.Color, line.Width = colors[i], vg.Points(1.5)
		dots.Color, dots.Shape, dots.Radius = colors[i], shapes[i], vg.Points(3)
		drawing.Add(line, dots)
		drawing.Legend.Add(c.name, line, dots)
	}
	if high, low := drawing.Y.Max, drawing.Y.Min; low > 0 {
		drawing.Y.Max = high * max(2, math.Pow(high/low, 0.4)) // room for the legend
	}
	canvas := vgsvg.New(18*vg.Centimeter, 10*vg.Centimeter)
	drawing.Draw(draw.Crop(draw.New(canvas), vg.Points(4), -vg.Points(12), vg.Points(4), -vg.Points(4)))
	return chart.SVG(canvas)
}

func newPlot(p *picture) *plot.Plot {
	drawing := chart.New(p.title, p.x, p.y)
	drawing.Legend.Padding = vg.Points(2)
	for _, axis := range []*plot.Axis{&drawing.X, &drawing.Y} {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.TickerFunc(ticks)
	}
	return drawing
}

// ticks returns ticks at 1, 2 and 5 times the powers of ten, or only at the powers if there are many of them.
func ticks(low, high float64) (all []plot.Tick) {
	steps := []float64{1, 2, 5}
	if high/low > 1000 {
		steps = steps[:1]
	}
	for power := math.Pow10(int(math.Floor(math.Log10(low)))); power <= high; power *= 10 {
		for _, step := range steps {
			if at := step * power; at >= low && at <= high {
				all = append(all, plot.Tick{Value: at, Label: thousands(at)})
			}
		}
	}
	return all
}
