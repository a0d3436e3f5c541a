package page

import (
	"fmt"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/study"
	"github.com/tierlimit/tierlimit/internal/simulate"
)

var lineHues = []hue{accent, blue, green, orange, red}

// OverTime plots the wrong decisions of a few configurations, in each part of the traffic's time.
func OverTime(points []study.Point) (Picture, error) {
	first, last := points[0].Traffic.Span()
	words := fmt.Sprintf("Wrong decisions of %d configurations from %s to %s.", len(points), first.Format(time.DateTime), last.Format(time.DateTime))
	var legend []Meaning
	for i, point := range points {
		legend = append(legend, lineHues[i%len(lineHues)].means("━", point.Candidate.String()))
	}
	return draws(words, legend, func(f format) (*plot.Plot, error) {
		p := newPlot("time (UTC)", fmt.Sprintf("wrong decisions per 1/%d of the time", simulate.Parts))
		p.Add(grid())
		for i, point := range points {
			var xys plotter.XYs
			for part, wrong := range point.OverTime {
				at := first.Add(time.Duration(float64(last.Sub(first)) * (float64(part) + 0.5) / simulate.Parts))
				xys = append(xys, plotter.XY{X: float64(at.UnixMicro()), Y: float64(wrong.Total())})
			}
			line, err := plotter.NewLine(xys)
			if err != nil {
				return nil, err
			}
			line.LineStyle = draw.LineStyle{Color: lineHues[i%len(lineHues)], Width: 1.5}
			p.Add(line)
		}
		p.Y.Min, p.Y.Max = 0, max(p.Y.Max, 1)*1.05
		p.Y.Tick.Marker = plot.TickerFunc(countTicks)
		p.X.Tick.Marker = timeTicks(first, last, f)
		return p, nil
	})
}

// timeTicks are a few round times: at most seven, or four in a narrow picture.
func timeTicks(first, last time.Time, f format) plot.Ticker {
	most := 7
	if f.narrow {
		most = 4
	}
	step, layout := roundStep(last.Sub(first), most), "15:04"
	switch span := last.Sub(first); {
	case span > 300*24*time.Hour: // the same day may come twice
		layout = "Jan 2006"
	case span > 36*time.Hour && step < 24*time.Hour:
		layout = "2 Jan 15:04"
	case span > 36*time.Hour:
		layout = "2 Jan"
	case span < 5*time.Second: // the steps are shorter than a second
		layout = "15:04:05.000"
	case span < 10*time.Minute:
		layout = "15:04:05"
	}
	var ticks []plot.Tick
	for t := first.Truncate(step).Add(step); t.Before(last); t = t.Add(step) {
		ticks = append(ticks, plot.Tick{Value: float64(t.UnixMicro()), Label: t.Format(layout)})
	}
	return plot.ConstantTicks(ticks)
}

// roundStep returns the shortest round step that fits into a span fewer than most times.
func roundStep(span time.Duration, most int) time.Duration {
	steps := []time.Duration{
		time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	}
	for _, step := range steps {
		if span/step < time.Duration(most) {
			return step
		}
	}
	day := 24 * time.Hour
	return day * (span/day/time.Duration(most) + 1)
}

// countTicks are round numbers from 0 on, at most eight steps.
func countTicks(_, high float64) (ticks []plot.Tick) {
	step := 1.0
	for i := 0; high/step > 8; i++ {
		step *= []float64{2, 2.5, 2}[i%3] // 1, 2, 5, 10, ...
	}
	for v := 0.0; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.0f", v)})
	}
	return ticks
}
