package importer

import "slices"

// property is one setting of the input.
type property struct {
	name    string // as the rules know it: without the prefixes of Debezium Server and of Connect's producer
	written string // as it stands in its file
	file    string
	value   value
	fault   string // why its value cannot be read: "" when it can
	refused bool   // the verdict is cannot: nothing is made of it
}

// form is what kind of file a layer came from.
type form int

const (
	formConnect    form = iota // one connector of Kafka Connect, as JSON or .properties
	formProperties             // Debezium Server's application.properties
	formYAML                   // its application.yaml
	formEnvironment
)

func (f form) String() string {
	return [...]string{"a Kafka Connect connector", "Debezium Server properties", "Debezium Server YAML", "an environment"}[f]
}

// layer is what one file says, in its order.
type layer struct {
	form  form
	file  string
	pairs []pair
}

type pair struct{ name, text string }

// get is the last value of a name, as in every form.
func (l layer) get(name string) (string, bool) {
	for _, p := range slices.Backward(l.pairs) {
		if p.name == name {
			return p.text, true
		}
	}
	return "", false
}

// unique drops all but the last of pairs with one name, and gives the names of those dropped.
func (l layer) unique() (kept []pair, dropped []string) {
	for i, p := range l.pairs {
		again := func(q pair) bool { return q.name == p.name }
		if slices.ContainsFunc(l.pairs[i+1:], again) {
			dropped = append(dropped, p.name)
			continue
		}
		kept = append(kept, p)
	}
	return kept, dropped
}
