// The topic of an event: the value of route.by.field, sent through Connect's RegexRouter.

package debezium

import (
	"bytes"
	"regexp"
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/debezium/regex"
)

// topics makes topics. It is safe for concurrent use.
type topics struct {
	whole    *regexp.Regexp // matches when the expression matches all of the value
	first    *regexp.Regexp
	template string // of regexp.Expand

	mu    sync.RWMutex
	known map[string][]byte // what was made of which value; an outbox has few kinds of aggregates
}

// maxKnown bounds the memory of topics: values may be made from data.
const maxKnown = 4096

func newTopics(pattern, replace string) (t *topics, regexFault, replaceFault error) {
	t = &topics{known: map[string][]byte{}}
	if t.first, regexFault = regex.Compile(pattern); regexFault != nil {
		return nil, regexFault, nil
	}
	if t.template, replaceFault = regex.Template(replace, t.first); replaceFault != nil {
		return nil, nil, replaceFault
	}
	t.whole = regexp.MustCompile(`\A(?:` + t.first.String() + `)\z`)
	return t, nil, nil
}

// append appends the topic for a value to dst.
func (t *topics) append(dst, value []byte) []byte {
	t.mu.RLock()
	topic, known := t.known[string(value)]
	t.mu.RUnlock()
	if !known {
		topic = t.make(value)
		t.mu.Lock()
		if len(t.known) >= maxKnown {
			clear(t.known)
		}
		t.known[string(value)] = topic
		t.mu.Unlock()
	}
	return append(dst, topic...)
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
