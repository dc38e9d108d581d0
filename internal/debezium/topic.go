// The topic of an event: the value of route.by.field, sent through Connect's RegexRouter.

package debezium

import (
	"bytes"
	"regexp"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/debezium/regex"
)

// topics makes topics. It is safe for concurrent use.
type topics struct {
	// matches when the expression matches all of the value; nil: it always does, and takes all of
	// it
	whole   *regexp.Regexp
	first   *regexp.Regexp
	replace regex.Replacement

	mu sync.RWMutex
	// what was made of which value; small: an outbox has few kinds of aggregates
	known map[string][]byte
}

// maxKnown bounds the memory of topics: values may be made from data.
const maxKnown = 4096

// everything are expressions that take any value of a line as one group, so that nothing has to be
// matched.
var everything = map[string]bool{`(?<routedByValue>.*)`: true, `(.*)`: true}

func newTopics(pattern, replace string) (t *topics, regexFault, replaceFault error) {
	t = &topics{known: map[string][]byte{}}
	if t.first, regexFault = regex.Compile(pattern); regexFault != nil {
		return nil, regexFault, nil
	}
	if t.replace, replaceFault = regex.NewReplacement(replace, t.first); replaceFault != nil {
		return nil, nil, replaceFault
	}
	if !everything[pattern] {
		t.whole = regexp.MustCompile(`\A(?:` + t.first.String() + `)\z`)
	}
	return t, nil, nil
}

// append appends the topic for a value to dst. The expression must match all of the value, or the
// value itself is the topic; the replacement is for the first match that a search finds, which need
// not be all of it.
func (t *topics) append(dst, value []byte) []byte {
	if t.whole == nil && !bytes.ContainsAny(value, "\n\r\u0085\u2028\u2029") {
		for i := range t.replace {
			if p := &t.replace[i]; p.Group < 0 {
				dst = append(dst, p.Literal...)
			} else {
				dst = append(dst, value...)
			}
		}
		return dst
	}
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

func (t *topics) make(value []byte) []byte {
	if t.whole == nil || !t.whole.Match(value) {
		return bytes.Clone(value)
	}
	loc := t.first.FindSubmatchIndex(value)
	made := bytes.Clone(value[:loc[0]])
	made = t.replace.AppendTo(made, value, loc)
	return append(made, value[loc[1]:]...)
}
