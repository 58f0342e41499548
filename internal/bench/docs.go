package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// figuresFile is the run that the documentation shows, below the root of the repository.
const figuresFile = "docs/performance/figures.json"

// docPages are the pages with figures in them.
var docPages = []string{"README.md", "docs/performance.md"}

// docsCommand writes the charts and the figures of the documentation anew from the file of a run.
func docsCommand(_ context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("docs", flag.ContinueOnError)
	root := flags.String("root", ".", "root of the repository")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files, err := documentation(*root)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(*root, name), []byte(text), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(out, name)
	}
	return nil
}

// documentation gives the pages and charts as the file of figures has them, by path below the root. Without that file the pages say how to measure.
func documentation(root string) (map[string]string, error) {
	r, err := readReport(filepath.Join(root, figuresFile))
	if errors.Is(err, fs.ErrNotExist) {
		r, err = new(report), nil
	}
	if err != nil {
		return nil, err
	}
	files := r.charts()
	for _, page := range docPages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			return nil, err
		}
		if files[page], err = r.fill(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", page, err)
		}
	}
	return files, nil
}

// A block of figures stands between these lines.
const (
	blockBegin = "<!-- figures: "
	blockEnd   = "<!-- end of figures -->\n"
)

// fill replaces what is in the blocks of a page by the figures that they name.
func (r *report) fill(page string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(page, blockBegin)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, rest, ok1 := strings.Cut(rest, " -->\n")
		_, after, ok2 := strings.Cut(rest, blockEnd)
		if !ok1 || !ok2 {
			return "", fmt.Errorf("a block of figures without an end: %.60s", rest)
		}
		text, err := r.block(name)
		if err != nil {
			return "", err
		}
		b.WriteString(blockBegin + name + " -->\n" + text + blockEnd)
		page = after
	}
}

// block gives the Markdown of a name: a table of the run, or one that is made of several.
func (r *report) block(name string) (string, error) {
	switch {
	case (name == "summary" || name == "plain") && len(r.Tables) == 0:
		return "", nil
	case len(r.Tables) == 0:
		return "To be measured on quiet cores.\n", nil
	}
	switch name {
	case "run":
		quick := ""
		if r.Quick {
			quick = " (a quick run: one round, a third of the rows)"
		}
		return fmt.Sprintf("Measured on %s at commit `%s` in %.0f minutes%s: %d cores of %s, %s GiB, Linux %s; %s.\n",
			r.Date, r.Commit, r.Minutes, quick, r.Host.Cores, r.Host.Processor, digits(r.Host.MemoryGiB), r.Host.Kernel, strings.Join(r.Versions, ", ")), nil
	case "rates":
		return r.across(figureRate) + picture("rates", "rows per second"), nil
	case "processor":
		return r.across(figureCPU) + picture("processor", "processor time per row"), nil
	case "peaks":
		return r.across(figurePeak) + picture("peaks", "peak memory"), nil
	case "latencies":
		return picture("latency", "latency"), nil
	case "summary":
		return r.beside("debezium-tuned", "Debezium, tuned"), nil
	case "plain":
		return r.beside("baseline", "plain relay"), nil
	case "shares":
		return r.shares(), nil
	case "targets":
		return r.targets(), nil
	}
	for _, t := range r.Tables {
		if t.Name == name {
			return t.markdown(), nil
		}
	}
	if slices.ContainsFunc(suiteOf("all", nil, false), func(b planned) bool { return strings.HasPrefix(name, b.name) }) {
		return "Not measured in this run.\n", nil
	}
	return "", fmt.Errorf("no benchmark gives figures of the name %s", name)
}

func picture(name, title string) string {
	return fmt.Sprintf("\n![%s](performance/%s.svg)\n", title, name)
}

// drains are the tables of the drains.
func (r *report) drains() []*table {
	return slices.DeleteFunc(slices.Clone(r.Tables), func(t *table) bool { return !strings.HasPrefix(t.Name, "drain-") })
}

// across is one figure of all drains.
func (r *report) across(name string) string {
	var contestants []string
	for _, t := range r.drains() {
		for _, c := range t.Contestants {
			if _, ok := t.median(name, c); ok && !slices.Contains(contestants, c) {
				contestants = append(contestants, c)
			}
		}
	}
	var b strings.Builder
	heading(&b, name, contestants)
	for _, t := range r.drains() {
		for _, f := range t.Figures {
			if f.Name == name {
				f.Name = strings.TrimPrefix(t.Name, "drain-")
				f.line(&b, contestants)
			}
		}
	}
	return b.String()
}

func (t *table) markdown() string {
	var b strings.Builder
	b.WriteString(strings.ToUpper(t.About[:1]) + t.About[1:] + ".\n\n")
	heading(&b, "", t.Contestants)
	for _, f := range t.Figures {
		f.line(&b, t.Contestants)
	}
	return b.String()
}

func heading(b *strings.Builder, first string, columns []string) {
	fmt.Fprintf(b, "| %s | %s |\n|---|%s\n", first, strings.Join(columns, " | "), strings.Repeat("--:|", len(columns)))
}

func (f figure) line(b *strings.Builder, contestants []string) {
	b.WriteString("| " + f.Name + " |")
	for _, c := range contestants {
		b.WriteString(" " + f.cell(c) + " |")
	}
	b.WriteByte('\n')
}

// beside is a small table of the README: the relay beside another contestant.
func (r *report) beside(contestant, title string) string {
	var b strings.Builder
	heading(&b, "", []string{"relay", title, "ratio"})
	add := func(what, name, figure string, number int) {
		for _, t := range r.Tables {
			if t.Name != name {
				continue
			}
			ours, ok1 := t.median(figure, t.Contestants[0])
			theirs, ok2 := t.median(figure, contestant)
			if ok1 && ok2 && ours > 0 && theirs > 0 {
				ratio := fmt.Sprintf("%s×", digits(ours/theirs))
				if ours < theirs {
					ratio = fmt.Sprintf("1/%s", digits(theirs/ours))
				}
				fmt.Fprintf(&b, "| %s | %.*f | %.*f | %s |\n", what, number, ours, number, theirs, ratio)
			}
		}
	}
	add("rows/s of a backlog, 10 outbox and 10 other rows in a transaction", "drain-mixed", figureRate, 0)
	add("the same with 2,000,000 rows, most of them after Debezium's JVM has compiled its code", "drain-mixed-long", figureRate, 0)
	add("rows/s of a backlog, one row in a transaction", "drain-single", figureRate, 0)
	add("µs of CPU per row of the first", "drain-mixed", figureCPU, 2)
	add("µs of CPU per row of the second", "drain-mixed-long", figureCPU, 2)
	add("MiB of memory at its peak", "drain-mixed", figurePeak, 0)
	add("s from the start to the first record", "drain-mixed", figureFirst, 2)
	add("ms from COMMIT to a consumer at 500 transactions/s, median", "latency-500", figureP50, 1)
	add("the same, 99th percentile", "latency-500", figureP99, 1)
	add("% of a core while nothing happens", "idle", figureCore, 2)
	return b.String()
}

// shares tells who had the processor during the relay's drains, and so what rate there could be.
func (r *report) shares() string {
	var b strings.Builder
	heading(&b, "", []string{"relay, µs per row", "MySQL and Kafka, µs per row", "cores busy", "rows/s", "rows/s with all cores busy", "the same if the relay cost nothing"})
	for _, t := range r.drains() {
		rate, ok1 := t.median(figureRate, "relay")
		ours, ok2 := t.median(figureAll, "relay")
		servers, ok3 := t.median(figureServers, "relay")
		if !ok1 || !ok2 || !ok3 {
			continue
		}
		cores := float64(r.Host.Cores) * 1e6
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %.2f | %.0f | %.0f | %.0f |\n", strings.TrimPrefix(t.Name, "drain-"), ours, servers, rate*(ours+servers)/1e6, rate, cores/(ours+servers), cores/servers)
	}
	return b.String()
}

// targets lists all of them with their outcome.
func (r *report) targets() string {
	var b strings.Builder
	heading(&b, "benchmark", []string{"figure of the relay (and what was aimed at)", ""})
	for _, t := range r.Tables {
		for _, c := range t.Checks {
			verdict := "met"
			if !c.met() {
				verdict = "**missed**"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", t.Name, c, verdict)
		}
	}
	return b.String()
}
