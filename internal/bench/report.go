package main

import "slices"

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// median of the values; of an even number the mean of the middle two. 0 without any.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
