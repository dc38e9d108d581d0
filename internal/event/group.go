// The ordering group: the events that are ordered among themselves.

package event

// Scope defines what an ordering group is, by delivery.ordering.
type Scope uint8

// The scopes.
const (
	// key, pipelined: the events of a key and exchange or topic; an event without a key is an
	// ordering group of its own
	PerKey             Scope = iota
	PerExchangeOrTopic       // commit: all events of an exchange or topic
	Free                     // none: each event is an ordering group of its own
)

// String is the scope as cdc_relay.slots stores it.
func (s Scope) String() string {
	return [...]string{PerKey: "key", PerExchangeOrTopic: "exchange or topic", Free: "none"}[s]
}

// Resent is the ordering group of the copies that a resend makes of a group's events: they are in
// order among themselves, and newer events of their key do not wait for them. Never 0; the tables
// store it, so it must never change.
func Resent(group uint64, job int64) uint64 { return max(group^uint64(job)*0x9e3779b97f4a7c15, 1) }

// Group is the ordering group of an event that goes to an exchange or topic, never 0, and whether
// later events of the group wait for it. Lanes, sinks and the tables all have it from here; SQL
// only compares stored values. The tables store it, so it must never change.
func (s Scope) Group(ev *Event, exchangeOrTopic uint64) (group uint64, ordered bool) {
	switch s {
	case PerExchangeOrTopic:
		return max(exchangeOrTopic, 1), ev.Fault == nil
	case Free:
		// unlike Hash it can be computed from a row
		return max(uint64(ev.Position.Commit)^uint64(ev.Position.Index)<<31^exchangeOrTopic, 1), false
	default:
		return max(ev.Hash^exchangeOrTopic, 1), ev.Ordered && ev.Fault == nil
	}
}
