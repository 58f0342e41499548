package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// charts are the pictures of the documentation, by path below the root of the repository.
func (r *report) charts() map[string]string {
	charts := map[string]string{}
	add := func(name, title string, lines []chartLine) {
		if len(lines) > 0 {
			charts["docs/performance/"+name+".svg"] = dotChart(title, lines)
		}
	}
	add("rates", "Drain of a backlog: rows per second, to the right is better", chartLines(r.drains(), "drain-", figureRate, figureRate))
	add("processor", "Drain of a backlog: processor time per row in µs, to the left is better", chartLines(r.drains(), "drain-", figureCPU, figureCPU))
	add("peaks", "Drain of a backlog: peak memory in MiB, to the left is better", chartLines(r.drains(), "drain-", figurePeak, figurePeak))
	var latencies []*table
	for _, t := range r.Tables {
		if strings.HasPrefix(t.Name, "latency-") {
			latencies = append(latencies, t)
		}
	}
	add("latency", "From COMMIT to a consumer, by transactions per second: ms, median to 99th percentile", chartLines(latencies, "latency-", figureP50, figureP99))
	return charts
}

// chartLine is one line of a chart: a dot for each contestant, or a stroke.
type chartLine struct {
	label string
	dots  []chartDot
}

type chartDot struct {
	contestant string
	from, to   float64 // equal for a dot
}

func chartLines(tables []*table, prefix, from, to string) (lines []chartLine) {
	for _, t := range tables {
		l := chartLine{label: strings.TrimPrefix(t.Name, prefix)}
		for _, c := range t.Contestants {
			a, ok1 := t.median(from, c)
			b, ok2 := t.median(to, c)
			if ok1 && ok2 && a > 0 && b > 0 {
				l.dots = append(l.dots, chartDot{c, a, b})
			}
		}
		if len(l.dots) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

// style is how the marks of a contestant look.
type style struct {
	contestant, colour string
	hollow             bool // as those of limits
}

var colours = []style{
	{"relay", "#0a7d4f", false}, {"relay-linger", "#6fbf9b", false}, {"baseline", "#4a6fa5", false}, {"debezium-tuned", "#c8553d", false}, {"debezium", "#e3a18f", false},
	{"packets", "#555555", true}, {"producer", "#9a7bbf", true}, {"direct", "#555555", true},
}

// Sizes of a chart in pixels.
const (
	chartWidth = 860
	labelWidth = 96
	rightEdge  = 24
	topEdge    = 66
	lineHeight = 34
	axisHeight = 30
)

// dotChart draws a chart with a logarithmic axis: the contestants differ by orders of magnitude.
func dotChart(title string, lines []chartLine) string {
	low, high := math.Inf(1), 0.0
	present := map[string]bool{}
	for _, l := range lines {
		for _, d := range l.dots {
			low, high = min(low, d.from, d.to), max(high, d.from, d.to)
			present[d.contestant] = true
		}
	}
	low, high = math.Floor(math.Log10(low*0.9)*2)/2, math.Ceil(math.Log10(high*1.1)*2)/2
	at := func(v float64) float64 {
		return labelWidth + (math.Log10(v)-low)/(high-low)*(chartWidth-labelWidth-rightEdge)
	}
	height := topEdge + len(lines)*lineHeight + axisHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" font-size="12" fill="#222">`+"\n", chartWidth, height, chartWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", chartWidth, height)
	fmt.Fprintf(&b, `<text x="12" y="22" font-size="15" font-weight="600">%s</text>`+"\n", html.EscapeString(title))
	x := 12
	for _, c := range colours {
		if present[c.contestant] {
			b.WriteString(mark(float64(x+5), 42, c.contestant))
			fmt.Fprintf(&b, `<text x="%d" y="46">%s</text>`+"\n", x+15, c.contestant)
			x += 30 + 7*len(c.contestant)
		}
	}
	bottom := topEdge + len(lines)*lineHeight
	for e := math.Ceil(low); e <= high; e++ {
		for _, m := range []float64{1, 3} {
			v := m * math.Pow(10, e)
			if math.Log10(v) > high+1e-9 {
				continue
			}
			fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#e4e4e4"/><text x="%.1f" y="%d" text-anchor="middle" fill="#666">%s</text>`+"\n", at(v), at(v), topEdge-8, bottom, at(v), bottom+18, axisLabel(v))
		}
	}
	for i, l := range lines {
		y := float64(topEdge + i*lineHeight + lineHeight/2 - 4)
		fmt.Fprintf(&b, `<text x="12" y="%.1f">%s</text><line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", y+4, html.EscapeString(l.label), labelWidth, chartWidth-rightEdge, y, y)
		for j, d := range l.dots {
			if d.from == d.to {
				b.WriteString(mark(at(d.from), y, d.contestant))
				continue
			}
			// Strokes stand below each other.
			offset := y + (float64(j)-float64(len(l.dots)-1)/2)*5
			fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="3.5" stroke-linecap="round"/>`+"\n", at(d.from), at(d.to), offset, offset, styleOf(d.contestant).colour)
		}
	}
	return b.String() + "</svg>\n"
}

func styleOf(contestant string) style {
	for _, c := range colours {
		if c.contestant == contestant {
			return c
		}
	}
	return style{contestant, "#000", false}
}

func mark(x, y float64, contestant string) string {
	c := styleOf(contestant)
	if c.hollow {
		return fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="4.5" fill="#fff" stroke="%s" stroke-width="2"/>`, x, y, c.colour)
	}
	return fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="5.5" fill="%s"/>`, x, y, c.colour)
}

// axisLabel prints 300, 1k, 3M.
func axisLabel(v float64) string {
	for _, u := range []struct {
		size float64
		unit string
	}{{1e6, "M"}, {1e3, "k"}} {
		if v >= u.size*0.999 {
			return fmt.Sprintf("%g%s", math.Round(v/u.size*100)/100, u.unit)
		}
	}
	return fmt.Sprintf("%g", math.Round(v*1000)/1000)
}
