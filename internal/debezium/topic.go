// The topic of an event: the value of route.by.field, sent through Connect's RegexRouter.

package debezium

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/debezium/regex"
	"github.com/cdc-relay/cdc-relay/internal/event"
)

// topics makes topics. It is safe for concurrent use.
type topics struct {
	whole    *regexp.Regexp // matches when the expression matches all of the value
	first    *regexp.Regexp
	template string // of regexp.Expand
	repeats  int    // how often a topic may have the whole value

	known cache[[]byte] // what was made of which value; an outbox has few kinds of aggregates
}

func newTopics(pattern, replace string) (t *topics, regexFault, replaceFault error) {
	t = new(topics)
	if t.first, regexFault = regex.Compile(pattern); regexFault != nil {
		return nil, regexFault, nil
	}
	if t.template, replaceFault = regex.Template(replace, t.first); replaceFault != nil {
		return nil, nil, replaceFault
	}
	t.repeats = 1 + strings.Count(t.template, "$")
	t.whole = regexp.MustCompile(`\A(?:` + t.first.String() + `)\z`)
	return t, nil, nil
}

// append appends the topic for a value to dst, within the budget.
func (t *topics) append(dst, value []byte, budget *event.Budget) ([]byte, error) {
	topic, known := t.known.get(value)
	if !budget.Make(len(t.template) + t.repeats*len(value)) {
		return dst, budget.Err()
	}
	if !known {
		topic = t.make(value)
		t.known.put(value, topic, len(topic))
	}
	return append(dst, topic...), nil
}

// make makes a topic. The expression must match all of the value, or the value itself is the topic;
// the replacement is for the first match that a search finds, which need not be all of it.
func (t *topics) make(value []byte) []byte {
	if !t.whole.Match(value) {
		return bytes.Clone(value)
	}
	loc := t.first.FindSubmatchIndex(value)
	made := bytes.Clone(value[:loc[0]])
	made = t.first.Expand(made, []byte(t.template), value, loc)
	return append(made, value[loc[1]:]...)
}

// pattern is the topic with part for each reference to a group.
func (t *topics) pattern(part string) string {
	groups := slices.Repeat([]int{0, len(part)}, t.first.NumSubexp()+1)
	return string(t.first.ExpandString(nil, t.template, part, groups))
}
