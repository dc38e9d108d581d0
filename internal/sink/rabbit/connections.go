// The connections that the sink keeps: how they are made again when they end, and what follows when
// the broker refuses the login, belongs to another cluster, or allows too few channels.

package rabbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
	"github.com/cdc-relay/cdc-relay/internal/sink/rabbit/conn"
)

// link keeps one of the sink's connections: its goroutine dials, waits for the end of the
// connection, and dials again. Lanes ask it for the present session.
type link struct {
	sink    *Sink
	mu      sync.Mutex
	session *conn.Session // nil while there is none
	up      chan struct{} // closed when session is set; made again when it ends
	// why the connection is away, or that the broker blocks; "" when all is well
	why string
}

const notConnected = "not connected yet"

// The pause before a reconnect is about backoffMin at first, and at most backoffMax.
const (
	backoffMin = 100 * time.Millisecond
	backoffMax = 2 * time.Second
)

// awaitSession waits until there is a session, and returns it.
func (l *link) awaitSession(ctx context.Context) (*conn.Session, error) {
	for {
		l.mu.Lock()
		sess, up := l.session, l.up
		l.mu.Unlock()
		if sess != nil && sess.Alive() {
			return sess, nil
		}
		if sess != nil { // it has ended, and keepConnected has not noticed yet
			select {
			case <-sess.Gone:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			l.dropSession(sess)
			continue
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// currentSession returns the present session, or nil.
func (l *link) currentSession() *conn.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil && l.session.Alive() {
		return l.session
	}
	return nil
}

// dropSession takes sess out of use, unless that was done already.
func (l *link) dropSession(sess *conn.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == sess {
		l.session, l.up = nil, make(chan struct{})
	}
}

// keepConnected keeps the connection until ctx is done. It returns an error only when the login is
// refused for good.
func (l *link) keepConnected(ctx context.Context) error {
	var backoff time.Duration
	for wasUp := false; ; {
		sess, err := l.sink.cfg.Dial(ctx, l.noteBlocked)
		if ctx.Err() != nil {
			if sess != nil {
				sess.Close(conn.CloseTimeout)
			}
			return nil
		}
		began := time.Now()
		if err != nil {
			l.noteState(explain(err))
			if stop := l.sink.loginRefused(err); stop != nil {
				return stop
			}
		} else {
			l.offerSession(ctx, sess, wasUp)
			wasUp = true
		}
		if err == nil && time.Since(began) > backoffMax {
			backoff = 0
		} else if backoff = nextBackoff(backoff); !sleep(ctx, backoff) {
			return nil
		}
	}
}

// nextBackoff returns the pause after one of d: twice as long within the bounds, less a random part
// of up to half.
func nextBackoff(d time.Duration) time.Duration {
	d = min(max(2*d, 2*backoffMin), backoffMax)
	return d/2 + rand.N(d/2)
}

// offerSession gives sess to the lanes until it ends or ctx is done.
func (l *link) offerSession(ctx context.Context, sess *conn.Session, again bool) {
	l.sink.prepareSession(ctx, sess, again)
	l.mu.Lock()
	if l.session == nil {
		close(l.up)
	}
	l.session = sess
	l.mu.Unlock()
	l.noteState("")
	select {
	case <-ctx.Done():
		l.dropSession(sess)
	case <-sess.Gone:
		l.dropSession(sess)
		l.noteState(l.sink.explainEnd(sess))
	}
	sess.Close(conn.CloseTimeout)
}

// noteState notes why the connection is away, or with "" that it is up, and logs a change.
func (l *link) noteState(why string) {
	l.mu.Lock()
	l.why = why
	l.mu.Unlock()
	l.sink.logState()
}

// noteBlocked notes that an alarm of the broker has begun or ended.
func (l *link) noteBlocked(on bool) {
	why := ""
	if on {
		why = "blocked by the broker (memory or disk alarm)"
	}
	l.noteState(why)
}

// sleep waits for d. It returns false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// prepareSession prepares a new connection before lanes use it: topology, channels, limits and
// warnings.
func (s *Sink) prepareSession(ctx context.Context, sess *conn.Session, again bool) {
	s.declareTopology(ctx, sess)
	if s.leads.Load() {
		sess.OpenAll(ctx)
	}
	s.limits.setFrameMax(sess.FrameMax())
	s.connected.Store(true)
	if few := s.fewChannels(sess.Allowed); few != "" {
		s.cfg.Log.Warn("broker allows few channels", zap.String("reason", few+"; "+s.fixFewChannels()))
	}
	if doubt := s.clusterDoubt(sess); doubt != "" {
		s.cfg.Log.Warn("broker has no cluster name", zap.String("reason", doubt+"; "+fixDoubt))
	}
	if h := s.cfg.Connected; h != nil {
		h(again)
	}
}

// loginRefused returns the error that stops the sink when the broker has refused the login for
// LoginTimeout, or has lacked what the configuration asks for, and no connection was ever made.
// Otherwise it returns nil. An address may lead to several brokers, whose settings are being
// changed one by one.
func (s *Sink) loginRefused(err error) error {
	if s.connected.Load() {
		return nil
	}
	var ex *amqp.Error
	var token *sink.TokenError
	byIssuer, unfit := errors.As(err, &token) && token.Refused(), errors.Is(err, conn.ErrUnfit)
	refused := byIssuer || errors.As(err, &ex) && ex.Code == amqp.AccessRefused
	now := time.Now().UnixNano()
	if !unfit {
		s.unfitSince.Store(0)
	} else if s.unfitSince.CompareAndSwap(0, now); time.Duration(now-s.unfitSince.Load()) >= s.cfg.LoginTimeout {
		return &event.Stop{Code: event.ExitUsage, Reason: "broker_unfit", What: conn.ErrorText(err), Fix: fixRefusal(err)}
	}
	if !unfit && !refused {
		s.refusedSince.Store(0)
		return nil
	}
	s.refusedSince.CompareAndSwap(0, now)
	if !refused || time.Duration(now-s.refusedSince.Load()) < s.cfg.LoginTimeout {
		return nil
	}
	what := "the broker has refused the login for"
	if byIssuer {
		what = "there has been no login for"
	}
	return &event.Stop{
		Code: event.ExitFailure, Reason: "broker_login",
		What: fmt.Sprintf("%s %s", what, s.cfg.LoginTimeout),
		Fix:  cmp.Or(fixRefusal(err), "check sink.rabbitmq.username and password"), Err: errors.New(conn.ErrorText(err)),
	}
}

// outdatedLogin returns why an exception accuses the login of its connection, and not a
// destination; nil when it does not. RabbitMQ reads an OAuth 2 token at the login and again when it
// checks a right. So once the token has expired every exchange is refused (403), on a connection
// that stands. (From 4.3 on the broker closes the connection, with a 320.) Such a connection is
// ended as if it were lost: what is unanswered is offered again, and nothing is rejected, so
// nothing is paused or deferred. The next one reads the credentials again. Without a new token its
// login is refused, which is an unavailable broker.
//
// A 403 accuses the login in two cases. No other ends a connection: a channel remembers only the
// rights that it was given, so the same credentials would be refused on a new connection as well.
//
//   - The broker says that it could not read the right from the token. At the login the same node
//     has read the right to the virtual host from it, by the same clock. So a new connection has a
//     good token, and this does not repeat itself.
//   - The credentials have changed since the login. The new ones, a token or not, may have the
//     right, whatever the broker's text: another plugin may have refused, or long names have cut
//     off the cause. An exchange that stays forbidden ends each connection once for each change,
//     and none at a probe. (Where a command makes them each login has others: see Renewed.) An
//     issuer's token that has ended counts as changed. A destination that was paused when the token
//     was late comes back: its next probe is refused, and finds the new one.
func (s *Sink) outdatedLogin(ctx context.Context, sess *conn.Session, ex *amqp.Error, probe bool) error {
	switch {
	case ex.Code != amqp.AccessRefused:
		return nil
	case isTokenExpired(ex):
		return errors.New("the token of its login has expired")
	case s.cfg.Renewed(ctx, sess, probe):
		return errors.New("refused, and the credentials have changed or ended since its login")
	}
	return nil
}

// Up reports whether every connection is up and not blocked, and if not, why.
func (s *Sink) Up() (ok bool, why string) {
	for _, l := range s.links {
		l.mu.Lock()
		why := l.why
		l.mu.Unlock()
		if why != "" {
			return false, why
		}
	}
	return true, ""
}

// logState logs one line when Up or its reason has changed.
func (s *Sink) logState() {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	up, why := s.Up()
	if why == s.logged {
		return
	}
	s.logged = why
	if up {
		s.outage.Back(zap.Int("connections", s.Status().Connections))
		return
	}
	s.outage.Away(why)
}

// firstCluster is the first cluster that the sink connected to: the name that its broker sent, and
// that broker's address.
type firstCluster struct{ name, addr string }

// admitCluster refuses a connection to a broker of another cluster than the first one. Addresses
// may lead to two unrelated brokers: blue and green behind one name or one proxy, or a list of
// both. Each confirms what it gets, and the consumers of either miss what the other one has.
// Nothing is sent over a refused connection, so the effect is that of a broker that is away.
//
// A broker sends the name of its cluster when a connection begins. A name that somebody has set is
// the same on all nodes, and only such names distinguish clusters. Without one, each node sends its
// own, as NODE@HOST (measured on 3.10; early versions sent the first node's from all). Two of those
// may be nodes of one cluster, so both are taken; see clusterDoubt. A broker that sends no name
// (another product, or an early version) is taken, too.
func (s *Sink) admitCluster(name, addr string) error {
	if name == "" || s.cluster.CompareAndSwap(nil, &firstCluster{name, addr}) {
		return nil
	}
	began := s.cluster.Load()
	if began.name == name || isNodeName(began.name) && isNodeName(name) {
		return nil
	}
	return fmt.Errorf("%w: %s is of cluster %s, the relay has begun with %s at %s", errOtherCluster, addr, name, began.name, began.addr)
}

// isNodeName reports whether a cluster's name is only the name of the node that has sent it.
func isNodeName(name string) bool { return strings.Contains(name, "@") }

// clusterDoubt describes a connection of which it is not known whether it leads to the sink's
// cluster. It returns "" when that is known, or when there is nothing to compare. AMQP gives a
// client with the relay's few rights no other way to find out.
func (s *Sink) clusterDoubt(sess *conn.Session) string {
	name, began := sess.ClusterName(), s.cluster.Load()
	if name == "" || began == nil || began.name == name {
		return ""
	}
	return fmt.Sprintf("%s is node %s, and %s is node %s: cannot determine whether they are one cluster, as it has no name", sess.Address, name, began.addr, began.name)
}

const fixDoubt = "if they are one, name it: rabbitmqctl set_cluster_name NAME, then restart the relay; if not, let every address in sink.rabbitmq.url lead to one of them"

// The texts with which RabbitMQ refuses a channel or connection over a limit (530): "number of
// channels opened for user 'u' has reached the maximum allowed user limit of (20)", or "on node 'n'
// … limit of 20" (4.x); "connection refused for user 'u': user connection limit (1) is reached",
// "node connection limit", or for a virtual host "connection limit". RabbitMQ closes the connection
// of a channel that it refuses.
var (
	channelText    = lazy.Regexp(`number of channels opened .* limit of \(?(\d+)`)
	connectionText = lazy.Regexp(`connection limit \((\d+)\) is reached`)
)

// channelLimit returns the limit of channels that the end of a connection names, or 0 when it had
// another cause.
func channelLimit(ex *amqp.Error) int {
	if ex == nil || ex.Code != amqp.NotAllowed {
		return 0
	}
	return foundNumber(channelText().FindStringSubmatch(ex.Reason))
}

// connectionLimit returns the limit of connections that an error of opening one names. is says
// whether the error is about such a limit.
func connectionLimit(err error) (limit int, is bool) {
	var ex *amqp.Error
	if !errors.As(err, &ex) || ex.Code != amqp.NotAllowed {
		return 0, false
	}
	found := connectionText().FindStringSubmatch(ex.Reason)
	return foundNumber(found), found != nil
}

// foundNumber returns the number in a match, or 0 without one.
func foundNumber(found []string) int {
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		return 0
	}
	return n
}

// explainEnd says why a connection has ended. When it was closed over one channel too many, each
// connection gets its share of the limit from then on, until the relay is restarted, and
// connections that have more are made again. The share may still be too much for a while, because
// the broker also counts channels that have just ended, or those of the relay before. Then it is
// tried again.
func (s *Sink) explainEnd(sess *conn.Session) (why string) {
	limit := channelLimit(sess.EndError())
	if limit == 0 {
		return sess.Reason()
	}
	share := max(limit/len(s.links), 1)
	s.maxChannels.Store(int64(share))
	for _, l := range s.links {
		if other := l.currentSession(); other != nil && other.Allowed > share {
			other.Kill(errors.New("another connection has been closed over a channel too many"))
		}
	}
	return sess.Reason() + "; " + s.fixFewChannels()
}

// fewChannels returns the warning about too few channels on a connection, or "" when there are
// enough.
func (s *Sink) fewChannels(channels int) string {
	if channels >= conn.EnoughChannels(s.cfg.Dialer.Lanes) {
		return ""
	}
	lanes, _, _ := conn.DivideChannels(channels)
	return fmt.Sprintf("channels of a connection: the broker allows %d, %d are enough for %d lanes and the probes: %d publish at a time",
		channels, conn.EnoughChannels(s.cfg.Dialer.Lanes), s.cfg.Dialer.Lanes, min(lanes, s.cfg.Dialer.Lanes))
}

// privateChannels is how many channels the private connections have at most, each connection with
// one for questions.
const privateChannels = 4

// fixFewChannels returns the fix for too few channels.
func (s *Sink) fixFewChannels() string {
	enough := conn.EnoughChannels(s.cfg.Dialer.Lanes)
	return fmt.Sprintf("set channel_max to %d or more and max-channels of the user to %d or more at the broker, or fewer delivery.lanes, and restart the relay",
		enough, enough*len(s.links)+privateChannels)
}

const fixConnections = "the relay uses two connections, and at times one or two more: raise max-connections of the user or of the virtual host (rabbitmqctl set_user_limits, set_vhost_limits), or connection_max of the node"
