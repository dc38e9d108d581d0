package importer

import (
	"slices"
	"strings"
)

// Input is one file: its name, as it is shown, and what is in it.
type Input struct {
	Name    string
	Content []byte
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

// cutProfile splits %dev.debezium.sink.type.
func cutProfile(name string) (profile, rest string, ok bool) {
	if !strings.HasPrefix(name, "%") {
		return "", name, false
	}
	return strings.Cut(name[1:], ".")
}

func afterProfile(name string) string {
	_, rest, _ := cutProfile(name)
	return rest
}
