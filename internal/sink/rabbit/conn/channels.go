// The channels of a connection: those in confirm mode, which its calls take in turns, and those for
// one question to the broker.

package conn

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Use is what a channel is taken for. Each use has channels of its own number, so none waits for
// another: the answers to a probe may take long.
type Use uint8

const (
	Lanes       Use = iota // the calls of lanes
	Probes                 // of what was refused before
	StuckProbes            // of what was not answered before
	useCount
)

// These bound the channels of probes on a connection.
const (
	MaxProbes = 8
	MaxStuck  = 16
)

// EnoughChannels is how many channels a connection needs so that no lane ever waits for one: those
// of the lanes, those of the probes, and one for a question to the broker.
func EnoughChannels(lanes int) int { return lanes + MaxProbes + MaxStuck + 1 }

// LeastChannels is how many channels make lanes, probes and questions independent of each other.
const LeastChannels = 4

// DivideChannels divides the channels of a connection: how many the lanes may use, how many the
// probes, and how many the probes of destinations that have left one unanswered. Fewer than
// LeastChannels are shared: then the probes have none of their own.
func DivideChannels(channels int) (lanes, probes, stuck int) {
	if channels < LeastChannels {
		return max(channels-1, 1), 0, 0
	}
	share := max((channels-1)/4, 1)
	probes, stuck = min(share, MaxProbes), min(share, MaxStuck)
	return channels - 1 - probes - stuck, probes, stuck
}

// channelTurns are the channels of a connection: as many as the broker allows, and no more than are
// of use. A call takes one and puts it back. So there may be fewer channels than lanes: these take
// turns then, and the order stays, because a lane has one call at a time.
type channelTurns struct {
	slots [useCount]chan struct{} // filled by who has a channel
	// filled by a channel that is closed while another one is in its place already
	spare  chan struct{}
	asking chan struct{} // filled by who asks the broker something on a channel of its own
	// filled by the one probe that is among the lanes when channels are shared: however many
	// destinations stand still, a lane waits for one of their probes at most
	sharing chan struct{}
	open    atomic.Int64 // channels

	Allowed      int // channels
	callChannels int // of those that calls take

	mu   sync.Mutex
	idle [useCount][]*Channel
}

// divideChannels divides the channels between their uses.
func (t *channelTurns) divideChannels(channels, lanes int) {
	calls, probes, stuck := DivideChannels(channels)
	calls = min(calls, lanes)
	slots := make(chan struct{}, calls)
	t.slots = [useCount]chan struct{}{slots, slots, slots}
	if probes > 0 {
		t.slots[Probes], t.slots[StuckProbes] = make(chan struct{}, probes), make(chan struct{}, stuck)
	}
	t.callChannels = calls + probes + stuck
	t.spare = make(chan struct{}, max(0, channels-1-t.callChannels))
	t.asking, t.sharing = make(chan struct{}, 1), make(chan struct{}, 1)
}

// Shared reports whether there are too few channels for probes to have their own: lanes wait for
// each of them.
func (t *channelTurns) Shared() bool { return t.slots[Lanes] == t.slots[Probes] }

// Channels is how many channels are open.
func (t *channelTurns) Channels() int { return int(t.open.Load()) }

// TakeChannel waits until one more channel may be in use for this purpose, and returns an idle
// channel or opens one. Where channels are shared, one probe at a time takes a channel of the
// lanes.
func (s *Session) TakeChannel(ctx context.Context, use Use) (*Channel, error) {
	shares := s.Shared() && use != Lanes
	if shares {
		if err := s.waitForTurn(ctx, s.sharing); err != nil {
			return nil, err
		}
		use = Lanes
	}
	c, err := s.takeTurn(ctx, use)
	if err != nil && shares {
		<-s.sharing
	}
	if c != nil {
		c.isSharing = shares
	}
	return c, err
}

func (s *Session) takeTurn(ctx context.Context, use Use) (*Channel, error) {
	if err := s.waitForTurn(ctx, s.slots[use]); err != nil {
		return nil, err
	}
	if c := s.takeIdle(use); c != nil {
		return c, nil
	}
	c, err := s.openChannel(ctx, use)
	if err != nil {
		<-s.slots[use]
		return nil, err
	}
	return c, nil
}

func (s *Session) waitForTurn(ctx context.Context, turn chan struct{}) error {
	select {
	case turn <- struct{}{}:
		return nil
	case <-s.Gone:
		return ErrGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Session) takeIdle(use Use) *Channel {
	s.channelTurns.mu.Lock()
	defer s.channelTurns.mu.Unlock()
	idle := &s.idle[use]
	for n := len(*idle); n > 0; n = len(*idle) {
		c := (*idle)[n-1]
		(*idle)[n-1], *idle = nil, (*idle)[:n-1]
		if !c.AMQP.IsClosed() {
			return c
		}
		s.open.Add(-1)
	}
	return nil
}

// PutBack gives the channel back, or closes it when it keeps much memory. Everything that was sent
// on it is answered.
func (c *Channel) PutBack() {
	if c.heavy {
		c.Abandon()
		return
	}
	c.endSharing()
	c.Session.putIdle(c)
	<-c.Session.slots[c.use]
}

// endSharing lets the next probe among the lanes.
func (c *Channel) endSharing() {
	if c.isSharing {
		c.isSharing = false
		<-c.Session.sharing
	}
}

func (s *Session) putIdle(c *Channel) {
	s.channelTurns.mu.Lock()
	defer s.channelTurns.mu.Unlock()
	s.idle[c.use] = append(s.idle[c.use], c)
}

// Abandon closes the channel in the background: later answers on it are ignored. Its turn ends when
// the broker has closed it, or at once while there are channels to spare.
func (c *Channel) Abandon() {
	c.endSharing()
	s := c.Session
	end := func(turn chan struct{}) func() {
		return func() {
			c.Close()
			s.open.Add(-1)
			<-turn
		}
	}
	select {
	case s.spare <- struct{}{}:
		<-s.slots[c.use]
		s.Spawn(end(s.spare))
	default:
		s.Spawn(end(s.slots[c.use]))
	}
}

// OpenAll opens the channels that there may be, but for those that calls have, and one more for a
// question. A broker that allows this user fewer closes the connection: now, while hardly anything
// is in flight on it. (RabbitMQ counts a user's channels with a delay, so it may let more in, and
// refuse a later one.)
func (s *Session) OpenAll(ctx context.Context) {
	var all errgroup.Group
	var taken [useCount]int // turns
	for use := range useCount {
		if use != Lanes && s.Shared() {
			break
		}
		for range cap(s.slots[use]) {
			select {
			case s.slots[use] <- struct{}{}:
				taken[use]++
				all.Go(func() error {
					c, err := s.openChannel(ctx, use)
					if err == nil {
						s.putIdle(c)
					}
					return err
				})
			default:
			}
		}
	}
	err := all.Wait()
	for use, n := range taken {
		for range n {
			<-s.slots[use]
		}
	}
	if err == nil && s.Allowed > s.callChannels {
		err = s.OnThrowawayChannel(ctx, func(*amqp.Channel) error { return nil })
	}
	if err != nil { // the connection has ended, or is about to
		select {
		case <-s.Gone:
		case <-ctx.Done():
		}
	}
}

// CloseIdle closes the channels that no call has.
func (s *Session) CloseIdle() {
	for use := range useCount {
		for c := s.takeIdle(use); c != nil; c = s.takeIdle(use) {
			c.Close()
			s.open.Add(-1)
		}
	}
}

// onThrowawayChannel runs f on a channel that is closed afterwards, one at a time.
func (s *Session) onThrowawayChannel(f func(*amqp.Channel) error) error {
	select {
	case s.asking <- struct{}{}:
	case <-s.Gone:
		return ErrGone
	}
	defer func() { <-s.asking }()
	ch, err := s.amqp.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	defer ch.Close() //nolint:errcheck // nothing depends on it
	return f(ch)
}

// Channel is a channel in confirm mode. It serves one call at a time, whose goroutine alone uses
// it. It is abandoned when a call leaves a message unanswered, so its answers always belong to the
// present call.
type Channel struct {
	Session   *Session
	AMQP      *amqp.Channel
	use       Use
	isSharing bool // a probe has it, and Session.sharing
	// Returns has room for the most a call can have returned: amqp091 drops a return that finds it
	// full for 5 s. The broker sends a message's return before its confirm, and amqp091's reader
	// hands both on in order, so once a confirm is seen the return is in here, or in returned. It
	// is nil once its end was seen.
	Returns  chan amqp.Return
	returned []Return // taken from Returns
	closes   chan *amqp.Error
	heavy    bool // see KeepReturn
}

// openChannel opens a channel in confirm mode. A call of a probe has one event.
func (s *Session) openChannel(ctx context.Context, use Use) (*Channel, error) {
	most := 1
	if use == Lanes {
		most = sink.MaxCallEvents
	}
	c := &Channel{Session: s, use: use, Returns: make(chan amqp.Return, most), closes: make(chan *amqp.Error, 1)}
	err := s.callBroker(ctx, func() (err error) {
		if c.AMQP, err = s.amqp.Channel(); err != nil {
			return fmt.Errorf("open channel: %w", err)
		}
		c.AMQP.NotifyReturn(c.Returns)
		c.AMQP.NotifyClose(c.closes)
		if err := c.AMQP.Confirm(false); err != nil {
			return fmt.Errorf("select confirms: %w", err)
		}
		return nil
	}, c.Close)
	if err != nil {
		return nil, err
	}
	if s.open.Add(1); s.onOpen != nil {
		s.onOpen()
	}
	return c, nil
}

// Close asks the broker to close the channel, and waits for the answer or the connection's end.
func (c *Channel) Close() {
	_ = c.AMQP.Close() //nolint:errcheck // an error says that the connection has ended, which closes the channel as well
}

// Usable reports whether a message may be written to the channel.
func (c *Channel) Usable() bool { return !c.AMQP.IsClosed() && c.Session.Alive() }

// Exception returns why the channel or its connection was closed; nil when that is not known.
func (c *Channel) Exception() *amqp.Error {
	select {
	case <-c.Session.Gone:
		return c.Session.end
	default:
	}
	select {
	case ex := <-c.closes:
		return ex
	default:
		return nil
	}
}

// HasRoom reports whether a message may be written now, as far as the broker and the wire go.
func (c *Channel) HasRoom() bool { return !c.Session.blocked.Load() && c.Session.Wire.hasRoom() }

// Ready waits until a message may be written: the broker does not block and the wire has room. It
// returns false when the channel is gone or ctx is done. If the broker blocks for hours, Ready
// waits for hours.
func (c *Channel) Ready(ctx context.Context) bool {
	for !c.HasRoom() {
		soon := c.Session.UntilUnblocked()
		if soon == nil {
			soon = c.Session.Wire.untilRoom()
		}
		select {
		case <-soon:
		case r, ok := <-c.Returns:
			c.KeepReturn(&r, ok)
		case <-c.Session.Gone:
		case <-ctx.Done():
		}
		if ctx.Err() != nil || !c.Usable() {
			return false
		}
	}
	return true
}

// OnThrowawayChannel runs f on a channel that is closed afterwards. f's error is returned; so is
// ctx's, or that of a connection that does not answer, and f then ends with the connection.
func (s *Session) OnThrowawayChannel(ctx context.Context, f func(*amqp.Channel) error) error {
	return s.callBroker(ctx, func() error { return s.onThrowawayChannel(f) }, func() {})
}

// callBroker runs f, which asks the broker something. amqp091's calls know no context and wait for
// ever, so f has a goroutine, which ends with the connection at the latest. If the broker does not
// answer within the confirm timeout, the connection is given up, unless the broker blocks: then it
// does not read either. undo is called when f succeeded after the caller stopped waiting.
func (s *Session) callBroker(ctx context.Context, f func() error, undo func()) error {
	done := make(chan error)
	started := s.Spawn(func() {
		err := f()
		select {
		case done <- err:
		case <-ctx.Done():
			if err == nil {
				undo()
			}
		case <-s.Gone:
		}
	})
	if !started {
		return ErrGone
	}
	tick := time.NewTicker(s.limit)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Gone:
			return ErrGone
		case <-tick.C:
			if !s.blocked.Load() {
				s.Kill(fmt.Errorf("broker has not answered for %s", s.limit))
			}
		}
	}
}
