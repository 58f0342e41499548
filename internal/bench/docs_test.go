package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func smallReport() *report {
	t := &table{Name: "drain-mixed", Contestants: []string{"relay", "debezium-tuned", "packets"}}
	values := map[string][]float64{"relay": {150_000, 160_000, 155_000}, "debezium-tuned": {10_000}, "packets": {900_000}}
	t.add(figureRate, 0, func(c string) []float64 { return values[c] })
	t.judge(figureRate, t.ratio(figureRate, "debezium-tuned", 15, false))
	l := &table{Name: "latency-500", Contestants: []string{"relay", "direct"}}
	l.add(figureP50, 2, func(string) []float64 { return []float64{1.5} })
	l.add(figureP99, 2, func(string) []float64 { return []float64{9} })
	return &report{Date: "2026-01-02", Commit: "abc", Tables: []*table{t, l}}
}

func TestBlocksOfAPageAreFilled(t *testing.T) {
	t.Parallel()
	page := "# Title\n" + blockBegin + "rates -->\nold\n" + blockEnd + "text\n" + blockBegin + "targets -->\n" + blockEnd
	got, err := smallReport().fill(page)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n" + blockBegin + "rates -->\n| rows/s | relay | debezium-tuned | packets |\n|---|--:|--:|--:|\n| mixed | 155000 ±3% | 10000 | 900000 |\n\n![rows per second](performance/rates.svg)\n" + blockEnd + "text\n" +
		blockBegin + "targets -->\n| benchmark | figure of the relay (and what was aimed at) |  |\n|---|--:|--:|\n| drain-mixed | rows/s: 15.5 × debezium-tuned (≥ 15) | met |\n" + blockEnd
	if got != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
	if again, err := smallReport().fill(got); err != nil || again != got {
		t.Errorf("filled again it is\n%s, %v", again, err)
	}
	for _, bad := range []string{blockBegin + "nothing -->\n" + blockEnd, blockBegin + "rates -->\n"} {
		if _, err := smallReport().fill(bad); err == nil {
			t.Errorf("%q was filled", bad)
		}
	}
}

func TestChartsAreWellFormed(t *testing.T) {
	t.Parallel()
	charts := smallReport().charts()
	if len(charts) != 2 {
		t.Errorf("%d charts of figures of two kinds", len(charts))
	}
	for _, name := range []string{"rates", "latency"} {
		text := charts["docs/performance/"+name+".svg"]
		d := xml.NewDecoder(strings.NewReader(text))
		var err error
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(text, ">relay</text>") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s is\n%s", name, text)
		}
	}
}

// The pages show the figures of the file beside them, to the letter.
func TestPagesAreThoseOfTheFigures(t *testing.T) {
	t.Parallel()
	const root = "../.."
	files, err := documentation(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s is not what `bench docs` writes (%v)", name, err)
		}
	}
}
