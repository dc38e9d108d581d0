// What a file says: names and texts, in its order.

package read

import (
	"errors"
	"slices"
)

// Input is one file: its name, as it is shown, and what is in it.
type Input struct {
	Name    string
	Content []byte
}

// form is what kind of file a layer came from.
type form int

const (
	Connect    form = iota // one connector of Kafka Connect, as JSON or .properties
	Properties             // Debezium Server's application.properties
	Environment
)

// File is what one file says, in its order.
type File struct {
	Form  form
	File  string
	Pairs []Pair
}

// Pair is a name and the text that a file sets it to.
type Pair struct{ Name, Text string }

var errWrapped = errors.New("is YAML, or of Kubernetes or Compose, which import does not read; give application.properties (with the names of application.yaml joined by dots) " +
	"and the environment of the container (kubectl exec POD -- env, docker compose exec SERVICE env); of a connector, its configuration as JSON")

// Has is true when the file sets a name.
func (l File) Has(name string) bool {
	return slices.ContainsFunc(l.Pairs, func(p Pair) bool { return p.Name == name })
}

// Unique drops all but the last of pairs with one name, and gives the names of those dropped.
func (l File) Unique() (kept []Pair, dropped []string) {
	for i, p := range l.Pairs {
		again := func(q Pair) bool { return q.Name == p.Name }
		if slices.ContainsFunc(l.Pairs[i+1:], again) {
			dropped = append(dropped, p.Name)
			continue
		}
		kept = append(kept, p)
	}
	return kept, dropped
}
