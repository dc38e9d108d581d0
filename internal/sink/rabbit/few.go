// What the broker allows of channels and connections, and what follows when that is little.

package rabbit

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// The texts with which RabbitMQ refuses one channel or connection more (530): "number of channels
// opened for user 'u' has reached the maximum allowed user limit of (20)", or "on node 'n' … limit
// of 20" (4.x); "connection refused for user 'u': user connection limit (1) is reached", "node
// connection limit", or for a virtual host "connection limit". It closes the connection of such a
// channel.
var (
	channelText    = lazy.Regexp(`number of channels opened .* limit of \(?(\d+)`)
	connectionText = lazy.Regexp(`connection limit \((\d+)\) is reached`)
)

// channelLimit is the number of channels that the end of a connection names as the limit; 0: it is
// about something else.
func channelLimit(ex *amqp.Error) int {
	if ex == nil || ex.Code != amqp.NotAllowed {
		return 0
	}
	return number(channelText().FindStringSubmatch(ex.Reason))
}

// connectionLimit is the same for connections, of an error when one is opened.
func connectionLimit(err error) (limit int, is bool) {
	var ex *amqp.Error
	if !errors.As(err, &ex) || ex.Code != amqp.NotAllowed {
		return 0, false
	}
	found := connectionText().FindStringSubmatch(ex.Reason)
	return number(found), found != nil
}

// number is what was found of a limit; 0: nothing.
func number(found []string) int {
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		return 0
	}
	return n
}

// errNoSecond keeps the other connections away when the user's channels are few.
var errNoSecond = errors.New("the user has too few channels for another connection")

// triesOfShare is how often each connection asks for its share before it takes less.
const triesOfShare = 3

// ended takes the end of a connection. When it was closed over a channel too many, each connection
// has its share of the limit from now on, or there is only one. That may still be too much: for a
// moment, since the broker counts what has just ended, or because others log in as the same user.
// Then, after some tries, it is half of what the connection had.
func (s *Sink) ended(sess *conn.Session) (why string) {
	limit := channelLimit(sess.End())
	if limit == 0 {
		return sess.Reason()
	}
	share := limit / len(s.links)
	if share < conn.Least {
		share = limit
		s.single.Store(true)
	}
	share = min(share, conn.Enough(s.cfg.Dialer.Lanes))
	s.share.Store(int64(max(share, 1)))
	if now := int(s.maxChannels.Load()); now > 0 && now < sess.Allowed {
		share = min(share, now) // the connection is from before
	}
	if share >= sess.Allowed {
		if share = sess.Allowed; int(s.crowded.Add(1)) > triesOfShare*len(s.links) {
			share /= 2
			s.crowded.Store(0)
		}
	}
	s.maxChannels.Store(int64(max(share, 1)))
	return sess.Reason() + "; " + s.fixFew()
}

// regain asks the broker at times whether there is room by now for channels that others had taken,
// such as the relay before in an upgrade. It asks on a connection apart: the broker closes that of
// a channel too many.
func (s *Sink) regain(ctx context.Context) error {
	for conn.Sleep(ctx, s.askAgain) {
		connections := int64(len(s.links))
		if s.single.Load() {
			connections = 1
		}
		missing := (s.share.Load() - s.maxChannels.Load()) * connections
		if missing <= 0 {
			continue
		}
		apart, err := s.cfg.Dial(ctx, nil)
		if err != nil {
			continue
		}
		free := apart.Opens(ctx, int(missing))
		apart.Close(conn.PrivateClose)
		if !free {
			continue
		}
		s.maxChannels.Store(s.share.Load())
		for _, l := range s.links {
			if sess := l.Own(); sess != nil {
				sess.Kill(errors.New("the broker has room for more channels by now"))
			}
		}
	}
	return nil
}

// instead is a connection for the lanes of one that the broker does not allow; nil: there is none,
// or err is about something else.
func (s *Sink) instead(err error) *conn.Session {
	if _, is := connectionLimit(err); !is && !errors.Is(err, errNoSecond) {
		return nil
	}
	return s.own()
}

// own is a connection of the sink's; nil: none is up.
func (s *Sink) own() *conn.Session {
	for _, l := range s.links {
		if sess := l.Own(); sess != nil {
			return sess
		}
	}
	return nil
}

// few says what too few channels on a connection mean; "": there are enough.
func (s *Sink) few(channels int) string {
	if channels >= conn.Enough(s.cfg.Dialer.Lanes) {
		return ""
	}
	lanes, _, _ := conn.Fit(channels)
	return fmt.Sprintf("channels of a connection: the broker allows %d, %d are enough for %d lanes and the probes: %d publish at a time",
		channels, conn.Enough(s.cfg.Dialer.Lanes), s.cfg.Dialer.Lanes, min(lanes, s.cfg.Dialer.Lanes))
}

// apart is how many channels the private connections have at most, each with a question.
const apart = 4

// fixFew is what to do about too few channels.
func (s *Sink) fixFew() string {
	enough := conn.Enough(s.cfg.Dialer.Lanes)
	return fmt.Sprintf("set channel_max to %d or more and max-channels of the user to %d or more at the broker, or fewer delivery.lanes, and restart the relay",
		enough, enough*len(s.links)+apart)
}

const fixConnections = "the relay uses two connections, and at times one or two more: raise max-connections of the user or of the virtual host (rabbitmqctl set_user_limits, set_vhost_limits), or connection_max of the node"
