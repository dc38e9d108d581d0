// Names of keys and variables, and suggestions for misspelt ones.

package config

import (
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
)

func fieldOf(path string) *setting.Key {
	for i, k := range allKeys() {
		if k.Name == path {
			return &allKeys()[i]
		}
	}
	return nil
}

func isField(path string) bool { return fieldOf(path) != nil }

// isSection is true for a path that has keys under it.
func isSection(path string) bool {
	return slices.ContainsFunc(allKeys(), func(k setting.Key) bool { return strings.HasPrefix(k.Name, path+".") })
}

// emptyFault says why the section at path must not be empty; "": it may be.
func emptyFault(path string) string {
	for _, k := range allKeys() {
		if section, _, _ := cutLast(k.Name); section == path && k.SectionFault != "" {
			return k.SectionFault
		}
	}
	return ""
}

// variableOf is the name of the variable that overrides the key at path.
func variableOf(path string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

// knownPaths is every path that may be written: fields, in the order of `config print`.
func knownPaths() []string {
	var paths []string
	for _, k := range allKeys() {
		paths = append(paths, k.Name)
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
	if near := setting.Nearest(name, siblings); near != "" {
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
