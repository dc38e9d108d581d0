// Names of keys and variables, and suggestions for misspelt ones.

package config

import (
	"slices"
	"strings"
)

func fieldOf(path string) *field {
	for i := range fields {
		if fields[i].path == path {
			return &fields[i]
		}
	}
	return nil
}

func isField(path string) bool { return fieldOf(path) != nil }

// isSection is true for a path that has keys under it.
func isSection(path string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return strings.HasPrefix(f.path, path+".") })
}

// variableOf is the name of the variable that overrides the key at path.
func variableOf(path string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

// knownPaths is every path that may be written: fields, in the order of `config print`.
func knownPaths() []string {
	paths := make([]string, 0, len(fields))
	for _, f := range fields {
		paths = append(paths, f.path)
	}
	return paths
}

func knownVariables() []string {
	names := knownPaths()
	for i, path := range names {
		names[i] = variableOf(path)
	}
	return names
}

// suggestKey names the key that an unknown one probably means: the nearest of its section. If there
// is no near one, it names all keys of the section, and the keys of other sections that have this
// name.
func suggestKey(path string) string {
	section, name, _ := cutLast(path)
	siblings := keysIn(section)
	if near := nearest(name, siblings); near != "" {
		return ", the nearest known one is " + join(section, near)
	}
	said := "; known here are " + strings.Join(siblings, ", ")
	var elsewhere []string
	for _, known := range knownPaths() {
		if _, leaf, nested := cutLast(known); nested && leaf == name {
			elsewhere = append(elsewhere, known)
		}
	}
	if len(elsewhere) > 0 {
		said += "; elsewhere there is " + strings.Join(elsewhere, " and ")
	}
	return said
}

// keysIn returns the names that a section may have.
func keysIn(section string) []string {
	var names []string
	for _, known := range knownPaths() {
		rest, inside := strings.CutPrefix(known, join(section, ""))
		if name, _, _ := strings.Cut(rest, "."); inside && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// join puts a name under a section; the file itself is the section "".
func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

// cutLast splits a path before its last name.
func cutLast(path string) (section, name string, nested bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// nearest is the known name that name is probably a misspelling of: a third of it may differ, three
// bytes at most. "" if no known name is that close. Libraries of edit distances count a swap of two
// neighbours as two edits, and would replace 20 lines.
func nearest(name string, known []string) string {
	best, most := "", 3
	for _, candidate := range known {
		d := distance(strings.ToLower(name), strings.ToLower(candidate))
		if d <= min(most, max(1, len(name)/3)) {
			best, most = candidate, d-1 // the first of equals
		}
	}
	return best
}

// orNearest is the end of a sentence about an unknown name: the nearest one, else all there are.
func orNearest(name string, known []string) string {
	if near := nearest(name, known); near != "" {
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
