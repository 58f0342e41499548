package gtid

import "slices"

// Functions on a list of runs: ascending, neither overlapping nor adjacent.

// searchRun gives the index of the first run that ends at n or later. Transactions mostly arrive
// near the end, so the last run is looked at first.
func searchRun(runs []run, n int64) int {
	if len(runs) == 0 || runs[len(runs)-1].last < n {
		return len(runs)
	}
	lo, hi := 0, len(runs)-1
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if runs[mid].last < n {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// addRun puts r into runs, in place where the capacity allows.
func addRun(runs []run, r run) []run {
	from := searchRun(runs, r.first-1) // the first run that r touches or that lies behind it
	to := from
	for to < len(runs) && runs[to].first <= r.last+1 {
		to++
	}
	if from == to {
		return slices.Insert(runs, from, r)
	}
	runs[from] = run{min(runs[from].first, r.first), max(runs[to-1].last, r.last)}
	return slices.Delete(runs, from+1, to)
}

// removeRun takes r out of runs, in place where the capacity allows.
func removeRun(runs []run, r run) []run {
	from := searchRun(runs, r.first)
	to := from
	for to < len(runs) && runs[to].first <= r.last {
		to++
	}
	if from == to {
		return runs
	}
	var rest [2]run
	n := 0
	if runs[from].first < r.first {
		rest[n] = run{runs[from].first, r.first - 1}
		n++
	}
	if runs[to-1].last > r.last {
		rest[n] = run{r.last + 1, runs[to-1].last}
		n++
	}
	return slices.Replace(runs, from, to, rest[:n]...)
}

// mergeRuns gives a new list with all numbers of a and b.
func mergeRuns(a, b []run) []run {
	out := make([]run, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		var r run
		if len(b) == 0 || len(a) > 0 && a[0].first <= b[0].first {
			r, a = a[0], a[1:]
		} else {
			r, b = b[0], b[1:]
		}
		if n := len(out); n > 0 && r.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// subtractRuns gives the numbers of a that are not in b. It changes a in place when b has few runs and gives a
// new list otherwise.
func subtractRuns(a, b []run) []run {
	if len(b) <= 4 {
		for _, r := range b {
			a = removeRun(a, r)
		}
		return a
	}
	out := make([]run, 0, len(a))
	for _, r := range a {
		for len(b) > 0 && b[0].last < r.first {
			b = b[1:]
		}
		for k := 0; k < len(b) && b[k].first <= r.last; k++ {
			if r.first < b[k].first {
				out = append(out, run{r.first, b[k].first - 1})
			}
			r.first = b[k].last + 1
		}
		if r.first <= r.last {
			out = append(out, r)
		}
	}
	return out
}

// containsRuns tells whether all numbers of b are in a.
func containsRuns(a, b []run) bool {
	for _, r := range b {
		at := searchRun(a, r.first)
		if at == len(a) || a[at].first > r.first || a[at].last < r.last {
			return false
		}
		a = a[at:]
	}
	return true
}
