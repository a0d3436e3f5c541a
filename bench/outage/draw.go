package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"strconv"
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
	blue   = color.RGBA{0x3b, 0x82, 0xf6, 0xff}
	orange = color.RGBA{0xea, 0x7a, 0x1a, 0xff}
	red    = color.RGBA{0xdc, 0x4c, 0x4c, 0xff}
	green  = color.RGBA{0x2f, 0xa0, 0x6a, 0xff}
)

// drawTimeline draws an outage: above, who admitted how much; below, how much of the
// limit each window held.
func drawTimeline(path string, s settings, o outcome) error {
	above, below := newPlot("admitted per second"), newPlot("units in the last window / limit")
	below.X.Label.Text = "seconds since Redis was lost"
	line := func(p *plot.Plot, name, subject string, c color.Color, value func(interval) float64) error {
		var points plotter.XYs
		for _, i := range o.Timeline {
			if i.Subject == subject {
				points = append(points, plotter.XY{X: i.Seconds, Y: value(i)})
			}
		}
		if len(points) == 0 {
			return nil
		}
		l, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		l.Color, l.Width, l.StepStyle = c, vg.Points(1.5), plotter.PostStep
		p.Add(l)
		p.Legend.Add(name, l)
		return nil
	}
	for _, l := range []struct {
		plot          *plot.Plot
		name, subject string
		color         color.Color
		value         func(interval) float64
	}{
		{above, "by Redis", ours.String(), blue, func(i interval) float64 { return i.Redis }},
		{above, "without Redis", ours.String(), orange, func(i interval) float64 { return i.Without }},
		{below, naive.String(), naive.String(), red, func(i interval) float64 { return i.Window }},
		{below, static.String(), static.String(), green, func(i interval) float64 { return i.Window }},
		{below, ours.String(), ours.String(), blue, func(i interval) float64 { return i.Window }},
	} {
		if err := line(l.plot, l.name, l.subject, l.color, l.value); err != nil {
			return err
		}
	}
	above.Title.Text = fmt.Sprintf("%s: %s", o.Name, o.About)
	for _, p := range []*plot.Plot{above, below} {
		p.X.Min = o.Timeline[0].Seconds
		p.X.Tick.Marker = ticks(s.Window.Seconds())
		p.Y.Min, p.Y.Max = 0, 1.2*p.Y.Max // room for the legend
		if err := shade(p, o.Outage); err != nil {
			return err
		}
	}
	below.Y.Tick.Marker = ticks(0.5)

	canvas := vgsvg.New(22*vg.Centimeter, 16*vg.Centimeter)
	rows := [][]*plot.Plot{{above}, {below}}
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadY: vg.Centimeter / 2, PadTop: vg.Points(4), PadBottom: vg.Points(4), PadLeft: vg.Points(4), PadRight: vg.Points(12)}
	canvases := plot.Align(rows, tiles, draw.New(canvas))
	above.Draw(canvases[0][0])
	below.Draw(canvases[1][0])
	var svg strings.Builder
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// For readers without these fonts.
	text := strings.ReplaceAll(svg.String(), "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,sans-serif")
	return os.WriteFile(path, []byte(text), 0o644)
}

// shade marks the outage.
func shade(p *plot.Plot, until float64) error {
	area, err := plotter.NewPolygon(plotter.XYs{{X: 0, Y: 0}, {X: until, Y: 0}, {X: until, Y: p.Y.Max}, {X: 0, Y: p.Y.Max}})
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = color.NRGBA{0x80, 0x80, 0x80, 0x28}, 0
	p.Add(area)
	return nil
}

// ticks are at the multiples of step.
func ticks(step float64) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (all []plot.Tick) {
		for i := math.Ceil(low / step); i*step <= high; i++ {
			all = append(all, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 4, 64)})
		}
		return all
	})
}

func newPlot(title string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = nil
	p.Y.Label.Text = title
	p.Title.TextStyle.Color = grey
	p.Legend.TextStyle.Color = grey
	p.Legend.Top = true
	p.Legend.Left = true
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Color, axis.Tick.Label.Color = grey, grey, grey, grey
	}
	grid := plotter.NewGrid()
	faint := color.NRGBA{0x80, 0x80, 0x80, 0x40}
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	return p
}
