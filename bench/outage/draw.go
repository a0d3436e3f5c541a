package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tierlimit/tierlimit/bench/internal/chart"
)

// drawTimeline draws an outage. The upper plot shows the admitted units by tier, and the lower plot shows how much of
// the limit each window held.
func drawTimeline(path string, s settings, o outcome) error {
	above, below := chart.New(fmt.Sprintf("%s: %s", o.Name, o.About), "", "admitted per second"), chart.New("", "seconds since Redis was lost", "units in the last window / limit")
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
		{above, "by Redis", ours.String(), chart.Blue, func(i interval) float64 { return i.Redis }},
		{above, "without Redis", ours.String(), chart.Orange, func(i interval) float64 { return i.Without }},
		{below, naive.String(), naive.String(), chart.Red, func(i interval) float64 { return i.Window }},
		{below, static.String(), static.String(), chart.Green, func(i interval) float64 { return i.Window }},
		{below, ours.String(), ours.String(), chart.Blue, func(i interval) float64 { return i.Window }},
	} {
		if err := line(l.plot, l.name, l.subject, l.color, l.value); err != nil {
			return err
		}
	}
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
	text, err := chart.SVG(canvas)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// shade marks the time of the outage.
func shade(p *plot.Plot, until float64) error {
	area, err := plotter.NewPolygon(plotter.XYs{{X: 0, Y: 0}, {X: until, Y: 0}, {X: until, Y: p.Y.Max}, {X: 0, Y: p.Y.Max}})
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = color.NRGBA{0x80, 0x80, 0x80, 0x28}, 0
	p.Add(area)
	return nil
}

// ticks returns ticks at the multiples of step.
func ticks(step float64) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) (all []plot.Tick) {
		for i := math.Ceil(low / step); i*step <= high; i++ {
			all = append(all, plot.Tick{Value: i * step, Label: strconv.FormatFloat(i*step, 'g', 4, 64)})
		}
		return all
	})
}
