package demo

import "github.com/tierlimit/tierlimit/limit"

// The size of charts, in the chart's own units, with one bar for each second.
const (
	barWidth    = 4
	chartWidth  = seconds * barWidth
	chartHeight = 80
)

// bar is a rectangle of a chart.
type bar struct {
	X, Y, Width, Height float64
	Class               string // who decided: "redis", "fallback" or "denied"
}

// chart is a picture of the last minute, the latest second on the right.
type chart struct {
	Width, Height int
	Bars          []bar
	Line          float64 // y coordinate of zero, or of the limit
	Top           int64   // the value at the upper edge
}

// place returns the bar of the i-th of n seconds.
func place(i, n int, y, height float64, class string) bar {
	const gap = 1
	return bar{X: float64((seconds - n + i) * barWidth), Y: y, Width: barWidth - gap, Height: height, Class: class}
}

// decisionsChart shows the decisions of an instance: those it admitted, by tier, above the line, and
// those it denied below it. most is the scale that all instances share.
func decisionsChart(past []tally, instance int, most most) chart {
	c := chart{Width: chartWidth, Height: chartHeight, Top: int64(most.allowed)}
	scale := float64(chartHeight) / float64(max(1, most.allowed+most.denied))
	c.Line = float64(most.allowed) * scale
	for i, t := range past {
		y, denied := c.Line, 0
		for tier, n := range t.counts[instance] {
			denied += n.denied
			if n.allowed > 0 {
				height := float64(n.allowed) * scale
				y -= height
				c.Bars = append(c.Bars, place(i, len(past), y, height, limit.Tier(tier).String()))
			}
		}
		if denied > 0 {
			c.Bars = append(c.Bars, place(i, len(past), c.Line, float64(denied)*scale, "denied"))
		}
	}
	return c
}

// most is the largest number that any instance allowed, and denied, in one second. All charts use this
// scale.
type most struct{ allowed, denied int }

func mostOf(past []tally) most {
	m := most{allowed: 5, denied: 5}
	for _, t := range past {
		for _, tiers := range t.counts {
			var allowed, denied int
			for _, n := range tiers {
				allowed += n.allowed
				denied += n.denied
			}
			m.allowed, m.denied = max(m.allowed, allowed), max(m.denied, denied)
		}
	}
	return m
}

// fullestChart shows the fullest window of any key in each second, compared with the limit.
func fullestChart(past []tally, quota int64) chart {
	c := chart{Width: chartWidth, Height: chartHeight, Top: quota + (quota+1)/2}
	for _, t := range past {
		c.Top = max(c.Top, t.fullest)
	}
	scale := float64(chartHeight) / float64(c.Top)
	c.Line = float64(chartHeight) - float64(quota)*scale
	for i, t := range past {
		class := "within"
		if t.fullest > quota {
			class = "over"
		}
		if height := float64(t.fullest) * scale; height > 0 {
			c.Bars = append(c.Bars, place(i, len(past), chartHeight-height, height, class))
		}
	}
	return c
}
