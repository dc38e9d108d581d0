// What the matcher knows: its options, its counts, the messages that wait.

package compare

import "container/list"

// Options say what is compared.
type Options struct {
	IDHeader string // by which messages are paired
	// that has the key by which order is compared; "": the record's key, or without records the
	// routing key
	KeyHeader string
	Ignore    []string // names of headers that are left out
	Strict    bool     // nothing else is left out
	Times     bool     // compare the records' times
	Kafka     bool     // the order of headers means something, and so do keys
	// Partitions compares partitions, which two topics must have the same number of.
	Partitions bool
	Remember   int // paired ids that are known again when they come a second time
	Excerpts   bool
}

// Matcher pairs the messages of both sides. It is used from one goroutine.
type Matcher struct {
	Counts

	opt     Options
	report  func(Difference)
	ends    bool
	number  [2]int64
	waiting [2]map[string]*list.Element // of *pending
	queue   [2]list.List                // of *pending, the oldest first
	bytes   [2]int64
	seen    *seen
	orders  orders
}

// Counts are what has been found so far. Arrays are by Side.
type Counts struct {
	Compared    int64          `json:"compared"` // pairs
	Equal       int64          `json:"equal"`
	Differences map[Kind]int64 `json:"differences"`
	LeftOut     LeftOut        `json:"left_out"`
	Events      [2]int64       `json:"messages"` // with an id, repetitions and all
	Duplicates  [2]int64       `json:"duplicates"`
	NoID        [2]int64       `json:"without_id"` // they are not compared
	// without a counterpart, which may have come before the beginning or after the end
	AtTheEdge [2]int64 `json:"not_counted"`
	// of those without a counterpart, the ones that were not held any longer
	GivenUp [2]int64 `json:"given_up"`
}

// LeftOut counts pairs in which something differs, or may differ, that is left out.
type LeftOut struct {
	ContextHeaders int64 `json:"context_headers"`    // of Debezium's run
	SchemaNames    int64 `json:"value_schema_names"` // theirs is that of the first event
	Times          int64 `json:"times"`
	Partitions     int64 `json:"partitions_without_key"` // of records without a key
	Ignored        int64 `json:"ignored_headers"`        // by Options.Ignore
}

// pending is a message that waits for its counterpart.
type pending struct {
	id     string
	m      Message
	number int64
	group  group
}

// found counts and reports.
func (x *Matcher) found(d Difference) {
	x.Differences[d.Kind]++
	x.report(d)
}

// differ is found for a pair.
func (x *Matcher) differ(pair [2]*pending, d Difference) {
	d.ID = pair[Theirs].id
	d.Where = [2]string{pair[Theirs].m.Where, pair[Ours].m.Where}
	x.found(d)
}

// Total is the number of differences.
func (c *Counts) Total() (n int64) {
	for _, one := range c.Differences {
		n += one
	}
	return n
}
