package page

import (
	"fmt"
	"html/template"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// hue is a color of a picture. Pictures use no other colors, and each hue stands for a name in the
// page's style sheet. So one picture has the right colors in light mode, in dark mode and on paper.
type hue struct {
	number uint8
	name   string
}

// RGBA returns a color that identifies the hue.
func (h hue) RGBA() (r, g, b, a uint32) { return color.RGBA{B: h.number, A: 0xff}.RGBA() }

var (
	ink    = hue{1, "ink"}
	faint  = hue{2, "faint"}
	accent = hue{3, "accent"}
	blue   = hue{4, "blue"}
	green  = hue{5, "green"}
	orange = hue{6, "orange"}
	red    = hue{7, "red"}
	shade  = hue{8, "shade"}

	toNames = func() *strings.Replacer {
		var pairs []string
		for _, h := range []hue{ink, faint, accent, blue, green, orange, red, shade} {
			pairs = append(pairs, fmt.Sprintf("#%06X", h.number), "var(--"+h.name+")")
		}
		return strings.NewReplacer(pairs...)
	}()
)

// Picture is a plot drawn in two sizes: for wide pages, and for phones, on which a scaled wide plot
// would not be readable.
type Picture struct {
	Wide, Narrow template.HTML
	// Legend says what the colors and marks mean. It is part of the page's text, where there is room
	// for it at any width.
	Legend []Meaning
}

// Meaning says what a mark in a color means.
type Meaning struct{ Mark, Color, Text string }

func (h hue) means(mark, text string) Meaning { return Meaning{mark, h.name, text} }

// format is the size of a picture.
type format struct {
	width, height vg.Length
	narrow        bool
}

var formats = []format{{720, 400, false}, {360, 380, true}}

// draws returns the picture of a plot that build makes for each format. words describe the plot to
// people who cannot see it.
func draws(words string, legend []Meaning, build func(f format) (*plot.Plot, error)) (Picture, error) {
	p := Picture{Legend: legend}
	for _, f := range formats {
		built, err := build(f)
		if err != nil {
			return Picture{}, fmt.Errorf("plotting: %w", err)
		}
		svg, err := render(built, f, words)
		if err != nil {
			return Picture{}, fmt.Errorf("plotting: %w", err)
		}
		if f.narrow {
			p.Narrow = svg
		} else {
			p.Wide = svg
		}
	}
	return p, nil
}

// render draws a plot as SVG that is embedded in HTML. The result consists of the plot's own text,
// which the plotting library escapes.
func render(p *plot.Plot, f format, words string) (template.HTML, error) {
	canvas := vgsvg.New(f.width, f.height)
	p.Draw(draw.New(canvas))
	var b strings.Builder
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	svg := b.String()
	// Drop the parts that only a separate SVG file has: the prolog, and a size on paper.
	_, svg, _ = strings.Cut(svg, "<svg")
	_, svg, _ = strings.Cut(svg, ">")
	svg = fmt.Sprintf("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=%q>", f.width.Points(), f.height.Points(), template.HTMLEscapeString(words)) + svg
	return template.HTML(toNames.Replace(svg)), nil
}

// newPlot returns an empty plot in the page's style.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = faint, faint
		axis.Tick.Length = 4
		axis.Label.Padding = 4
	}
	align(&p.X.Label.TextStyle, style(ink, 11))
	align(&p.Y.Label.TextStyle, style(ink, 11))
	align(&p.X.Tick.Label, style(ink, 10))
	align(&p.Y.Tick.Label, style(ink, 10))
	return p
}

// align sets a style without its alignment, which the axis sets by itself.
func align(to *text.Style, s text.Style) { to.Font, to.Color, to.Handler = s.Font, s.Color, s.Handler }

func style(h hue, size float64) text.Style {
	return text.Style{Color: h, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(size)), Handler: plot.DefaultTextHandler}
}
