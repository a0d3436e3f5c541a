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

// Pictures know no colours but these, which stand for names in the page's style
// sheet: so one picture is right in light, in dark and on paper.
var (
	ink     = color.RGBA{B: 0x01, A: 0xff}
	faint   = color.RGBA{B: 0x02, A: 0xff}
	accent  = color.RGBA{B: 0x03, A: 0xff}
	blue    = color.RGBA{B: 0x04, A: 0xff}
	green   = color.RGBA{B: 0x05, A: 0xff}
	orange  = color.RGBA{B: 0x06, A: 0xff}
	red     = color.RGBA{B: 0x07, A: 0xff}
	shade   = color.RGBA{B: 0x08, A: 0xff}
	toNames = strings.NewReplacer(
		"#000001", "var(--ink)", "#000002", "var(--faint)", "#000003", "var(--accent)",
		"#000004", "var(--blue)", "#000005", "var(--green)", "#000006", "var(--orange)",
		"#000007", "var(--red)", "#000008", "var(--shade)",
	)
)

// Picture is a plot drawn twice: for wide pages, and for phones, where a scaled wide
// one could not be read.
type Picture struct {
	Wide, Narrow template.HTML
	// Words are what one sees, for those who do not.
	Words string
}

// format is a size of a picture.
type format struct {
	width, height vg.Length
	narrow        bool
}

var formats = []format{{720, 400, false}, {360, 380, true}}

// draws makes a picture of a plot that build makes for a format.
func draws(words string, build func(f format) (*plot.Plot, error)) (Picture, error) {
	p := Picture{Words: words}
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

// render draws a plot as SVG to stand inside HTML. What it returns is made of the
// plot's own text, which the plotting library escapes.
func render(p *plot.Plot, f format, words string) (template.HTML, error) {
	canvas := vgsvg.New(f.width, f.height)
	p.Draw(draw.New(canvas))
	var b strings.Builder
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	svg := b.String()
	// Without what only a file of its own has: the prolog, and a size on paper.
	_, svg, _ = strings.Cut(svg, "<svg")
	_, svg, _ = strings.Cut(svg, ">")
	svg = fmt.Sprintf("<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=%q>", f.width.Points(), f.height.Points(), template.HTMLEscapeString(words)) + svg
	return template.HTML(toNames.Replace(svg)), nil
}

// newPlot is an empty plot in the page's style.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Title.TextStyle = style(ink, 12)
	p.Legend.TextStyle = style(ink, 10)
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

// align sets a style but for the alignment, which is the axis's own affair.
func align(to *text.Style, s text.Style) { to.Font, to.Color, to.Handler = s.Font, s.Color, s.Handler }

func style(c color.Color, size float64) text.Style {
	return text.Style{Color: c, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(size)), Handler: plot.DefaultTextHandler}
}
