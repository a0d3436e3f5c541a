// Package chart is the style of the benchmarks' pictures. Their background is transparent, and they are readable on
// light and on dark pages.
package chart

import (
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colors of the curves.
var (
	Blue   = color.RGBA{0x3b, 0x82, 0xf6, 0xff}
	Orange = color.RGBA{0xea, 0x7a, 0x1a, 0xff}
	Green  = color.RGBA{0x2f, 0xa0, 0x6a, 0xff}
	Red    = color.RGBA{0xdc, 0x4c, 0x4c, 0xff}
	Violet = color.RGBA{0x9b, 0x6d, 0xd6, 0xff}
)

var (
	grey  = color.RGBA{0x80, 0x80, 0x80, 0xff}
	faint = color.NRGBA{0x80, 0x80, 0x80, 0x40}
)

// New returns an empty plot with a grid, and room for a legend on top at the left.
func New(title, x, y string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = grey, grey
	p.Legend.Top, p.Legend.Left = true, true
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Color, axis.Tick.Label.Color = grey, grey, grey, grey
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	return p
}

// SVG returns the drawing in a form that also works for readers without its fonts.
func SVG(canvas *vgsvg.Canvas) (string, error) {
	var svg strings.Builder
	if _, err := canvas.WriteTo(&svg); err != nil {
		return "", err
	}
	return strings.ReplaceAll(svg.String(), "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,sans-serif"), nil
}
