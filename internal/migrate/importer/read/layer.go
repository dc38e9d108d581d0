// What a file says: names and texts, in its order.

package read

import (
	"fmt"
	"slices"
	"strconv"
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
	Connect    form = iota // one connector of Kafka Connect, as JSON or .properties
	Properties             // Debezium Server's application.properties
	YAML                   // its application.yaml
	Environment
)

func (f form) String() string {
	return [...]string{"a Kafka Connect connector", "Debezium Server properties", "Debezium Server YAML", "an environment"}[f]
}

// File is what one file says, in its order.
type File struct {
	Form  form
	File  string
	Pairs []Pair
}

// Pair is a name and the text that a file sets it to.
type Pair struct{ Name, Text string }

// Get is the last value of a name, as in every form.
func (l File) Get(name string) (string, bool) {
	for _, p := range slices.Backward(l.Pairs) {
		if p.Name == name {
			return p.Text, true
		}
	}
	return "", false
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

// CutProfile splits %dev.debezium.sink.type.
func CutProfile(name string) (profile, rest string, ok bool) {
	if !strings.HasPrefix(name, "%") {
		return "", name, false
	}
	return strings.Cut(name[1:], ".")
}

func afterProfile(name string) string {
	_, rest, _ := CutProfile(name)
	return rest
}

// yamlText is a scalar of YAML as text.
func yamlText(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
