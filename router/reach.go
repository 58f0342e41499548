package router

import "strings"

// maxCombinations bounds the search of unreachable. A rule with more combinations of values counts as reachable.
const maxCombinations = 4096

// unreachable tells whether every row that r matches is taken by one of the earlier rules of the same table, and names one of them.
//
// A column takes endless values, so an earlier rule with a condition on a column that r leaves free never takes all rows of r. Among the
// others, r is unreachable when each combination of r's own values is taken.
func unreachable(r rule, earlier []rule) (by int, yes bool) {
	total := 1
	for _, c := range r.when {
		total *= len(c.values)
		if total == 0 || total > maxCombinations {
			return 0, false
		}
	}
	row := make(map[string]string, len(r.when))
	yes = everyCombination(r.when, row, func() bool {
		for _, e := range earlier {
			if e.takes(row) {
				by = e.index
				return true
			}
		}
		return false
	})
	return by, yes
}

// everyCombination puts each combination of the conditions' values into row and tells whether covered holds for all.
func everyCombination(when []condition, row map[string]string, covered func() bool) bool {
	if len(when) == 0 {
		return covered()
	}
	for v := range when[0].values {
		row[strings.ToLower(when[0].column)] = v
		if !everyCombination(when[1:], row, covered) {
			return false
		}
	}
	return true
}

// takes tells whether r matches whatever row has these values.
func (r rule) takes(row map[string]string) bool {
	for _, c := range r.when {
		v, known := row[strings.ToLower(c.column)]
		if !known {
			return false
		}
		if _, ok := c.values[v]; !ok {
			return false
		}
	}
	return true
}
