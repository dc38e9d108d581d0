// Suggestions for misspelt names.

package setting

import "strings"

// Nearest is the known name that name is probably a misspelling of: a third of it may differ, three
// bytes at most. "" if no known name is that close. Libraries of edit distances count a swap of two
// neighbours as two edits, and would replace 20 lines.
func Nearest(name string, known []string) string {
	best, most := "", 3
	for _, candidate := range known {
		d := distance(strings.ToLower(name), strings.ToLower(candidate))
		if d <= min(most, max(1, len(name)/3)) {
			best, most = candidate, d-1 // the first of equals
		}
	}
	return best
}

// OrNearest is the end of a sentence about an unknown name: the nearest one, else all there are.
func OrNearest(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return ", the nearest known one is " + near
	}
	return "; known here are " + strings.Join(known, ", ")
}

// distance is the number of bytes to insert, remove, replace or swap with their neighbour to get
// from a to b.
func distance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			replace := previous[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			current[j] = min(previous[j]+1, current[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
