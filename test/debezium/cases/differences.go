package cases

import (
	"slices"
	"strings"
)

// Difference is one thing that the relay deliberately does otherwise: the first column of the
// tables in docs/from-debezium.md.
type Difference string

// Those that a case has. AllShown has more: what no record shows.
const (
	ContextHeaders   Difference = "context-headers"
	SchemaName       Difference = "schema-name"
	KeylessPartition Difference = "keyless-partition"
	NumericAsObject  Difference = "numeric-as-object"
	NumericNaN       Difference = "numeric-nan"
	NoRecord         Difference = "no-record"
	RefusedTable     Difference = "refused-table"
	HalfSurrogate    Difference = "half-surrogate"
	Update           Difference = "update"
)

// Differing are the differences that each case has, by GROUP/CASE: what is declared of it, and what
// the comparison leaves out of the records that the real Debezium has made, which are in dir.
func Differing(dir string) (map[string][]Difference, error) {
	all := map[string][]Difference{}
	for _, g := range All() {
		golden, err := Read(dir, g.Name)
		if err != nil {
			return nil, err
		}
		for _, c := range g.Cases {
			name, differs := g.Name+"/"+c.Name, c.Differs
			if g.Stops != "" {
				differs = g.Difference
			}
			all[name] = append(all[name], differs)
		}
		for _, r := range golden.Records {
			if c := g.Case(r); c != "" {
				all[g.Name+"/"+c] = append(all[g.Name+"/"+c], g.leftOut(r)...)
			}
		}
	}
	for name, differences := range all {
		slices.Sort(differences)
		all[name] = slices.DeleteFunc(slices.Compact(differences), func(d Difference) bool { return d == "" })
	}
	return all, nil
}

// leftOut are the differences that the comparison does not see: what neutral takes away, and the
// partition that is any.
func (g *Group) leftOut(r Record) (found []Difference) {
	if slices.ContainsFunc(r.Headers, func(h Header) bool { return strings.HasPrefix(h.Name, context) }) {
		found = append(found, ContextHeaders)
	}
	if named := routeInName.FindSubmatch(r.Value); named != nil && string(named[2]) != g.Route(g.Case(r)) {
		found = append(found, SchemaName)
	}
	if r.Partition < 0 && !g.Rabbit {
		found = append(found, KeylessPartition)
	}
	return found
}
