package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Colours that are readable on a light and on a dark page; the background is the page's.
var (
	grey   = color.RGBA{0x80, 0x80, 0x80, 0xff}
	faint  = color.NRGBA{0x80, 0x80, 0x80, 0x40}
	colors = []color.Color{
		color.RGBA{0x3b, 0x82, 0xf6, 0xff}, // blue
		color.RGBA{0xea, 0x7a, 0x1a, 0xff}, // orange
		color.RGBA{0x2f, 0xa0, 0x6a, 0xff}, // green
		color.RGBA{0xdc, 0x4c, 0x4c, 0xff}, // red
		color.RGBA{0x9b, 0x6d, 0xd6, 0xff}, // violet
	}
	// So that nobody needs the colours.
	shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PlusGlyph{}, draw.CrossGlyph{}}
)

// drawInto draws each picture into its file in a folder.
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
	var svg strings.Builder
	if _, err := canvas.WriteTo(&svg); err != nil {
		return "", err
	}
	// For readers without these fonts.
	return strings.ReplaceAll(svg.String(), "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,sans-serif"), nil
}

func newPlot(p *picture) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	drawing := plot.New()
	drawing.BackgroundColor = nil
	drawing.Title.Text, drawing.X.Label.Text, drawing.Y.Label.Text = p.title, p.x, p.y
	drawing.Title.TextStyle.Color, drawing.Legend.TextStyle.Color = grey, grey
	drawing.Legend.Top, drawing.Legend.Left, drawing.Legend.Padding = true, true, vg.Points(2)
	for _, axis := range []*plot.Axis{&drawing.X, &drawing.Y} {
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Color, axis.Tick.Label.Color = grey, grey, grey, grey
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.TickerFunc(ticks)
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	drawing.Add(grid)
	return drawing
}

// ticks are at 1, 2 and 5 times the powers of ten; where there are many powers, only at
// these.
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
