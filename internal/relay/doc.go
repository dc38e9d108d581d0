// Package relay is the line between the replication stream and the sink: events go forward down ordered lanes, one number,
// the watermark, comes back.
//
// One goroutine, the reader, calls Begin, Event, Commit, Keepalive and Disconnected in the order of the stream. Event
// copies the row into the arena of its lane, waits while the window is full, and returns. A goroutine per lane publishes
// what has arrived, waits for the outcomes, settles what was confirmed and repeats. What may not be sent now it gives to the
// Siding, which settles it once its row is committed, and offers it again later. The tracker knows which transactions still
// have unsettled events, and from that which position may be reported to the server.
//
//	reader ── Event ─▶ window ─▶ lane ── Publish ─▶ sink
//	            │                │  ▲ └─── Park ────▶ Siding
//	            │                │  └───── Offer ──────┤
//	            └──── tracker ◀──┴── settle ◀─ Settled ┘
//	                     └──▶ Watermark
//
// Who may touch what: the reader's fields of Line belong to the reader; a lane's fields, but for its inbox, to its
// goroutine; window, tracker and gates have a mutex each and call nobody else of the line while they hold it.
package relay
