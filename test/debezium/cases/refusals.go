// What the cases become that deliberately differ.

package cases

import (
	"slices"
	"strings"
)

// Refusals are the lines in which the dead letters, of which these are the ids, are not those that
// are declared: each record that Debezium has made of a case that differs is a dead letter, or the
// same here; of each such case there is one at least, and nothing else is one.
func (g *Group) Refusals(want, got []Record, dead []string) (all []string) {
	differs := map[string]bool{}
	for _, c := range g.Cases {
		differs[c.Name] = c.Differs != ""
	}
	has := func(in []Record, r Record) bool {
		return slices.ContainsFunc(in, func(other Record) bool { return neutral(other) == neutral(r) })
	}
	for _, r := range got {
		if differs[g.Case(r)] && !has(want, r) {
			all = append(all, "sent, and neither Debezium's record nor a dead letter: "+neutral(r))
		}
	}
	left, refused := slices.Clone(dead), map[string]bool{}
	for _, w := range want {
		name := g.Case(w)
		if !differs[name] || has(got, w) {
			continue
		}
		i := slices.IndexFunc(left, func(id string) bool { return strings.Contains(w.id(), id) })
		if i < 0 {
			all = append(all, "not sent, and no dead letter: "+neutral(w))
			continue
		}
		left, refused[name] = slices.Delete(left, i, i+1), true
	}
	for _, id := range left {
		all = append(all, "a dead letter that is declared nowhere: "+id)
	}
	for _, c := range g.Cases {
		if c.Differs != "" && !refused[c.Name] {
			all = append(all, c.Name+" is said to differ, and has no dead letter")
		}
	}
	return all
}
