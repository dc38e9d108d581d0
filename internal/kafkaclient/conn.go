// Package kafkaclient speaks Kafka's protocol, for the relay's sink and for package inbox/kafka.
// Its Conn is one connection to a broker. Its Client sends the batches of idempotent producers to
// the leaders of their partitions. Its Pool is for everything else that is asked of a cluster.
//
// The encodings of requests and answers are kafka-go's. What a broker can make kafka-go do is
// bounded here: see Check. kafka-go's Transport is not used. It does not say on which connection a
// request goes, which rule R4 of the sink's producer needs. It waits for an answer when nobody does
// any more, and opens as many connections as it is asked at a time. A request of 1 MiB takes it 17
// system calls and 2.7 times as long, measured.
package kafkaclient

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient/socket"
)

const (
	// DialTimeout is for TCP, TLS, versions and login together.
	DialTimeout = 10 * time.Second
	// A broker drops a connection that was idle for connections.max.idle.ms (10 minutes); load
	// balancers drop it sooner (4 minutes on some clouds). A connection that was idle for this long
	// is not used again: a request that is lost on it would be in doubt.
	maxIdle = 3 * time.Minute
	// maxAnswer is far above the size of any answer without records, in bytes. A peer that
	// announces more does not speak Kafka, and is not read.
	maxAnswer = 8 << 20
	// maxDecoded is for an answer that was decoded: 140,000 partitions take as much.
	maxDecoded = 16 << 20
	// FetchLimit is the least limit for the records of one answer: no broker's default allows a
	// batch that takes as much.
	FetchLimit = 64 << 20
	// keptFrame is the largest buffer for an answer that is kept, in bytes. One that grew further
	// is given back.
	keptFrame = 1 << 20
)

// highestVersions has the highest version of each request that is used. A request that is not
// listed uses kafka-go's highest. No listed version is flexible: kafka-go takes what the tags of a
// flexible answer claim for lengths, and older versions have all that is needed. An answer with
// records is decoded in this package, which knows one version of it.
var highestVersions = map[protocol.ApiKey]int16{
	protocol.InitProducerId: 1, protocol.CreateTopics: 4, protocol.Fetch: fetchVersion, protocol.FindCoordinator: 2,
	protocol.JoinGroup: 4, protocol.SyncGroup: 2, protocol.OffsetCommit: 5,
	// From v1 on kafka-go reads the throttle time of these two as the error code, and so misses the
	// error.
	protocol.Heartbeat: 0, protocol.LeaveGroup: 0,
}

func highestVersion(key protocol.ApiKey) int16 {
	if version, is := highestVersions[key]; is {
		return version
	}
	return key.MaxVersion()
}

// neededRequests are the requests that a broker must know, with the lowest version that is enough:
// batches of magic 2, metadata requests that create no topics, and producer ids.
var neededRequests = []struct {
	key     protocol.ApiKey
	version int16
}{{protocol.Produce, 3}, {protocol.Metadata, 4}, {protocol.InitProducerId, 0}}

// DialOptions say how a connection is opened.
type DialOptions struct {
	// SASL is called at every connect, and ends with its ctx; nil means that there is no login.
	SASL func(ctx context.Context) (*SASL, error)
	// TLS is called at every connect; nil means plaintext. An empty ServerName becomes the broker's
	// host.
	TLS func() (*tls.Config, error)
	// Secure takes a TLS connection before its handshake, and returns the connection to use. nil
	// leaves it as it is.
	Secure func(*tls.Conn) net.Conn
	// ProduceVersion is the least version of a produce request that is needed; 0 means any that
	// this package knows.
	ProduceVersion int16
	// ClientID is the client.id that brokers log and set quotas for.
	ClientID string
	// Limit bounds the memory for the records of one answer. It counts as at least FetchLimit.
	Limit int
}

// Conn is a connection to one broker, logged in. It carries one request at a time, from one
// goroutine at a time. Close may be called from any goroutine. A Conn has a goroutine of its own
// only while Watch watches it.
type Conn struct {
	Addr          string
	opts          *DialOptions
	net           net.Conn
	socket        *socket.Conn // under net, to look at while it is idle; nil: it is another kind
	reader        *bufio.Reader
	gather        gatherWriter     // writes the last request
	frame         []byte           // the bytes of the last answer
	fetchLimit    int              // for an answer with records, in bytes; 0: that of opts
	produceAnswer produce.Response // the last answer to a produce request
	// the version that is used, of each request that both sides know
	Versions map[protocol.ApiKey]int16
	lastID   int32     // the correlation id of the last request
	usedAt   time.Time // when the last answer came
	Expires  time.Time // when the broker wants a new login; zero means never
	closed   atomic.Bool
}

// Dial connects within DialTimeout, or until ctx ends. Its error wraps ErrLogin when the broker
// refuses the login.
func Dial(ctx context.Context, opts *DialOptions, addr string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	dialer := net.Dialer{KeepAlive: 15 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", addr, err)
	}
	raw = socket.Quiet(raw)
	c := &Conn{Addr: addr, opts: opts, net: raw, usedAt: time.Now(), Versions: map[protocol.ApiKey]int16{protocol.ApiVersions: 0}}
	c.socket, _ = raw.(*socket.Conn)
	if err := c.prepare(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// prepare makes a TCP connection fit for requests: TLS, versions and login.
func (c *Conn) prepare(ctx context.Context) error {
	if c.opts.TLS != nil {
		if err := c.encrypt(ctx); err != nil {
			return fmt.Errorf("open TLS with broker %s: %w", c.Addr, err)
		}
	}
	c.reader = bufio.NewReader(c.net)
	if err := c.negotiate(ctx); err != nil {
		return err
	}
	if c.opts.SASL == nil {
		return nil
	}
	credentials, err := c.opts.SASL(ctx)
	if err == nil {
		err = c.login(ctx, credentials)
	}
	if err != nil {
		return fmt.Errorf("log in at broker %s: %w", c.Addr, err)
	}
	return nil
}

func (c *Conn) encrypt(ctx context.Context) error {
	cfg, err := c.opts.TLS()
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(c.Addr)
		if err != nil {
			return fmt.Errorf("read host: %w", err)
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	secure := tls.Client(c.net, cfg)
	c.net = secure
	if c.opts.Secure != nil {
		c.net = c.opts.Secure(secure)
	}
	err = secure.HandshakeContext(ctx)
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.As(err, new(tls.RecordHeaderError)) {
		return err
	}
	if c.takesPlaintext(ctx) {
		return &UnfitError{ErrNoTLS, ErrNoTLS.Error()}
	}
	return fmt.Errorf("the port may take no TLS: %w", err)
}

// negotiate asks which versions of which requests the broker knows. It chooses the highest version
// of each that both sides know.
func (c *Conn) negotiate(ctx context.Context) error {
	res, err := RoundTripAs[*apiversions.Response](ctx, c, DialTimeout, new(apiversions.Request))
	if err != nil {
		return err
	}
	if res.ErrorCode != 0 {
		return fmt.Errorf("ask broker %s for its versions: %w", c.Addr, kafkago.Error(res.ErrorCode))
	}
	offers := map[protocol.ApiKey]apiversions.ApiKeyResponse{}
	for _, offer := range res.ApiKeys {
		key := protocol.ApiKey(offer.ApiKey)
		offers[key] = offer
		if version := min(offer.MaxVersion, highestVersion(key)); version >= max(offer.MinVersion, key.MinVersion()) {
			c.Versions[key] = version
		}
	}
	for _, need := range neededRequests {
		offer, known := offers[need.key]
		if !known {
			return &UnfitError{ErrTooOld, fmt.Sprintf("broker %s has no %v request: Kafka 0.11 or newer is needed, and not the port of a KRaft controller", c.Addr, need.key)}
		}
		least := need.version
		if need.key == protocol.Produce {
			least = max(least, c.opts.ProduceVersion)
		}
		if version, both := c.Versions[need.key]; !both || version < least {
			return &UnfitError{ErrTooOld, fmt.Sprintf("broker %s has %v v%d to v%d, needed is one of v%d to v%d",
				c.Addr, need.key, offer.MinVersion, offer.MaxVersion, least, highestVersion(need.key))}
		}
	}
	return nil
}

// Connection is a *Conn, or what a test uses instead.
type Connection interface {
	RoundTrip(ctx context.Context, timeout time.Duration, req protocol.Message) (protocol.Message, error)
	Usable() bool
	// Watch notices when the connection ends while it is idle. It costs a goroutine each time, so
	// only the control connection uses it.
	Watch(ended chan<- struct{}) (unwatch func())
	Close()
}

// RoundTripAs is RoundTrip for an answer of type R. Any error closes the connection.
func RoundTripAs[R protocol.Message](ctx context.Context, c Connection, timeout time.Duration, req protocol.Message) (res R, err error) {
	answer, err := c.RoundTrip(ctx, timeout, req)
	if err != nil {
		return res, err
	}
	res, ok := answer.(R)
	if !ok {
		c.Close()
		return res, fmt.Errorf("send %v: the answer is a %T", req.ApiKey(), answer)
	}
	return res, nil
}

// RoundTrip sends a request and waits for its answer, at most for timeout. The end of ctx breaks it
// off at once, and its error then wraps that of ctx. After any error the connection is closed, and
// it is not known whether the broker got the request.
func (c *Conn) RoundTrip(ctx context.Context, timeout time.Duration, req protocol.Message) (answer protocol.Message, err error) {
	err = c.exchange(ctx, timeout, req, func(body []byte, version int16) error {
		answer, err = c.decodeAnswer(body, req.ApiKey(), version)
		return err
	})
	return answer, err
}

// decodeAnswer decodes the body of an answer: what comes after its size and correlation id.
func (c *Conn) decodeAnswer(body []byte, key protocol.ApiKey, version int16) (protocol.Message, error) {
	if key == protocol.Produce {
		return &c.produceAnswer, readProduceAnswer(body, version, &c.produceAnswer)
	}
	if err := CheckAnswer(body, key, version, maxDecoded); err != nil {
		return nil, err
	}
	_, answer, err := protocol.ReadResponse(bytes.NewReader(c.frame), key, version)
	if res, ok := answer.(*metadata.Response); ok && version < 7 {
		forgetEpochs(res)
	}
	return answer, err
}

// exchange sends a request and calls decode with the body of its answer.
func (c *Conn) exchange(ctx context.Context, timeout time.Duration, req protocol.Message, decode func(body []byte, version int16) error) error {
	version, err := c.sendRequest(ctx, timeout, req)
	if err == nil {
		err = decode(c.frame[8:], version)
	}
	if err != nil {
		c.Close()
		if ended := ctx.Err(); ended != nil {
			err = ended // the end of ctx set the deadline that broke the exchange
		}
		if errors.Is(err, ErrWantsLogin) {
			err = c.wantsLogin(ctx, err)
		}
		return fmt.Errorf("send %v to broker %s: %w", req.ApiKey(), c.Addr, err)
	}
	c.usedAt = time.Now()
	return nil
}

// sendRequest sends a request and reads its answer into frame.
func (c *Conn) sendRequest(ctx context.Context, timeout time.Duration, req protocol.Message) (version int16, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	key := req.ApiKey()
	version, ok := c.Versions[key]
	if !ok {
		return 0, errors.New("the broker has no version of this request in common with this client")
	}
	if err := c.net.SetDeadline(time.Now().Add(timeout)); err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.net.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // a dead connection has failed the exchange already
	})
	defer func() {
		if !stop() {
			c.Close() // the end of ctx may set the deadline at any time from now on
		}
	}()
	c.lastID++
	c.gather = gatherWriter{to: c.net, pages: c.gather.pages[:0]}
	if err := protocol.WriteRequest(&c.gather, version, c.lastID, c.opts.ClientID, req); err != nil {
		return 0, err
	}
	return version, c.readFrame(key)
}

// gatherWriter writes a request in one system call, where kafka-go makes one for each 64 KiB. That
// saves a third of the time that both ends spend on 1 MiB. A request begins with its size, so
// gatherWriter knows when it is complete. WriteRequest keeps the pages until then.
type gatherWriter struct {
	to    net.Conn
	pages net.Buffers
	left  int // bytes of the request that are still to come
}

func (g *gatherWriter) Write(page []byte) (int, error) {
	if len(g.pages) == 0 {
		g.left = 4 + int(binary.BigEndian.Uint32(page))
	}
	g.pages = append(g.pages, page)
	if g.left -= len(page); g.left > 0 {
		return len(page), nil
	}
	var err error
	if rest := g.pages; len(rest) == 1 {
		_, err = g.to.Write(page) // net.Buffers would not call socket.Conn
	} else { // WriteTo moves the start of its receiver, and the room in front would be lost
		_, err = rest.WriteTo(g.to)
	}
	clear(g.pages) // kafka-go uses the pages again
	return len(page), err
}

// readFrame reads an answer into frame, which is valid until the next request. It checks the size
// and the correlation id before anything is decoded, because bytes of another protocol would be
// taken for lengths of gigabytes. A frame that grew for a large answer is dropped before the next
// one.
func (c *Conn) readFrame(key protocol.ApiKey) error {
	head, err := c.reader.Peek(8)
	if len(head) >= 3 && head[0] == 21 && head[1] == 3 {
		return &UnfitError{ErrWantsTLS, ErrWantsTLS.Error()}
	}
	if errors.Is(err, io.EOF) && c.lastID == 2 && key != protocol.SaslHandshake {
		return fmt.Errorf("%w: %w", ErrWantsLogin, err)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the broker closed the connection: %w", err)
	}
	if err != nil {
		return err
	}
	size, most := int(int32(binary.BigEndian.Uint32(head))), maxAnswer
	if key == protocol.Fetch {
		most = cmp.Or(c.fetchLimit, max(c.opts.Limit, FetchLimit))
	}
	switch id := int32(binary.BigEndian.Uint32(head[4:])); {
	case size < 4, size > most && id != c.lastID:
		return errors.New("the answer is not Kafka's")
	case id != c.lastID:
		return fmt.Errorf("the answer is to request %d, not to %d", id, c.lastID)
	case size > most:
		return &TooLargeError{most}
	}
	if cap(c.frame) > keptFrame {
		c.frame, c.produceAnswer = nil, produce.Response{}
	}
	c.frame, err = readBody(c.reader, c.frame, 4+size)
	return err
}

// readBody reads n bytes into b's memory. It allocates at most twice what has come so far, so that
// a wrong length cannot take all memory.
func readBody(r io.Reader, b []byte, n int) ([]byte, error) {
	const piece = 64 << 10
	for b = b[:0]; len(b) < n; {
		more := min(n-len(b), max(piece, len(b), cap(b)-len(b)))
		if free := cap(b) - len(b); free < more {
			b = append(make([]byte, 0, len(b)+more), b...)
		}
		next := b[len(b) : len(b)+more]
		if _, err := io.ReadFull(r, next); err != nil {
			return b, err
		}
		b = b[:len(b)+more]
	}
	return b, nil
}

// forgetEpochs marks the leaders' epochs as missing in metadata before v7, which has none: kafka-go
// leaves 0 there.
func forgetEpochs(res *metadata.Response) {
	for _, topic := range res.Topics {
		for i := range topic.Partitions {
			topic.Partitions[i].LeaderEpoch = None
		}
	}
}

// Close ends the connection. A request that is not answered fails.
func (c *Conn) Close() {
	if !c.closed.Swap(true) {
		c.net.Close()
	}
}

// Usable reports whether a request may be sent: the connection is up, the broker has sent nothing
// that was not asked for, it has not idled for long, and the login is good for a while. The
// goroutine that sends calls it while no request is under way. Between an answer and the next
// request a broker sends nothing, so when anything has come the connection is of no use any more.
// To ask the kernel costs one system call; a goroutine that watches meanwhile costs its start and
// two wakes.
func (c *Conn) Usable() bool {
	now := time.Now()
	return !c.closed.Load() && now.Sub(c.usedAt) < maxIdle && (c.Expires.IsZero() || now.Before(c.Expires)) && (c.socket == nil || c.socket.IsSilent())
}

// Watch watches the connection while no request is under way. When the broker ends it, or sends
// bytes without a request, Watch closes the connection and signals ended, which has room for one
// signal. unwatch ends the watch and must be called before the next request.
func (c *Conn) Watch(ended chan<- struct{}) (unwatch func()) {
	var unwatched atomic.Bool
	done := make(chan struct{})
	failed := c.net.SetReadDeadline(time.Time{}) // the deadline of the last request is still set
	go func() {
		defer close(done)
		if failed == nil {
			_, _ = c.reader.Peek(1) //nolint:errcheck // a deadline is unwatch's; after anything else the connection is useless
		}
		if !unwatched.Load() {
			c.Close()
			Notify(ended)
		}
	}()
	return func() {
		unwatched.Store(true)
		if err := c.net.SetReadDeadline(time.Unix(1, 0)); err != nil {
			c.Close() // which ends the wait, too
		}
		<-done
	}
}

// Notify signals a channel with room for one signal, and does not wait when a signal is there
// already.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ErrorText returns a broker's own text, or the text of its error code.
func ErrorText(code int16, message string) string {
	if message != "" {
		return fmt.Sprintf("%s (%d)", message, code)
	}
	return kafkago.Error(code).Error()
}
