package page

import (
	"math"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Every text color is readable on the page's background, in light and in dark mode: the contrast is at
// least 4.5, as WCAG 2 (1.4.3) requires.
func TestColorsAreReadable(t *testing.T) {
	schemes := regexp.MustCompile(`--paper: #([0-9a-f]{6});[^}]*`).FindAllStringSubmatch(source, -1)
	if len(schemes) != 2 {
		t.Fatalf("%d color schemes, want light and dark", len(schemes))
	}
	for _, scheme := range schemes {
		for _, color := range regexp.MustCompile(`--(ink|faint|accent|blue|green|orange|red): #([0-9a-f]{6})`).FindAllStringSubmatch(scheme[0], -1) {
			if c := contrast(t, color[2], scheme[1]); c < 4.5 {
				t.Errorf("%s on #%s: a contrast of %.2f", color[0], scheme[1], c)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance returns WCAG's relative luminance of a color like "1d2430".
func luminance(t *testing.T, color string) (sum float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(color[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}

// The marks of a time axis differ from each other, and those of years say which year they are in.
func TestTimeTicks(t *testing.T) {
	first := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for span, want := range map[time.Duration]string{
		2 * time.Second:          "12:00:00.500",
		time.Minute:              "12:00:10",
		3 * time.Hour:            "12:30",
		72 * time.Hour:           "23 Nov 00:00",
		20 * 24 * time.Hour:      "25 Nov",
		6 * 365 * 24 * time.Hour: "Sep 2027",
	} {
		ticks := timeTicks(first, first.Add(span), format{}).Ticks(0, 0)
		seen := make(map[string]bool)
		for _, tick := range ticks {
			if seen[tick.Label] {
				t.Errorf("%v: two marks are %s", span, tick.Label)
			}
			seen[tick.Label] = true
		}
		if len(ticks) == 0 || ticks[0].Label != want {
			t.Errorf("%v: the first mark of %v is not %s", span, ticks, want)
		}
	}
}
