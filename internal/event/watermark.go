// The watermark: the position up to which the stream is settled, and which may be reported as
// flushed.

package event

import "github.com/jackc/pglogrepl"

// Watermark is how far the stream is settled.
type Watermark struct {
	// LSN may be reported to the server as flushed: every event of every transaction up to it is
	// settled. It is exactly the end LSN of a transaction, a keepalive's position received outside
	// a transaction, or where the slot stood at first.
	LSN pglogrepl.LSN
	// Own is the end LSN of the newest transaction with events of ours that LSN covers; 0 as long
	// as there is none.
	Own pglogrepl.LSN
}
