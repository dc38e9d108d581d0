// The check of Kafka: it asks the brokers for everything that the relay will need, and says how to
// fix what is missing.

package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/internal/kafkaclient"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// examineCluster examines everything that a start needs of the cluster: each configured address,
// with the login; each broker at the address that it advertises; the right to a producer id; the
// topic, with the rights to write to it and to read back, or the existing topics of a template; and
// the topic of the mirror, if there is one. It publishes nothing. It returns after all answers, or
// soon after ctx is done.
func examineCluster(ctx context.Context, opts *kafkaclient.Options, l *layout, cfg *Config) (found []sink.Finding) {
	e := examination{opts: opts, layout: l, topicName: cfg.Topic, readBack: cfg.ReadBack}
	defer e.closeConn()
	if opts.SASL != nil {
		e.login, _ = opts.SASL(ctx) //nolint:errcheck // each connection finds it, too
	}
	found = append(e.checkBrokers(ctx), e.checkLogin()...)
	if e.conn == nil {
		return found
	}
	found = append(found, e.checkAdvertised(ctx)...)
	found = append(found, e.checkProducerID(ctx))
	found = append(found, e.checkTopics(ctx)...)
	e.readBack = false // no copy is looked for
	return append(found, e.checkMirror(ctx, cfg.Mirror)...)
}

// examination is a check while it runs.
type examination struct {
	layout    *layout
	topicName sink.Template
	readBack  bool // the right to read is of use
	opts      *kafkaclient.Options
	login     *kafkaclient.SASL // nil: none, or it cannot be read
	conn      *kafkaclient.Conn // the first connection that was opened
	cluster   *metadata.Response
	reached   []string // addresses that were reached
}

func (e *examination) closeConn() {
	if e.conn != nil {
		e.conn.Close()
	}
}

// checkBrokers checks the configured addresses. One that answers is enough.
func (e *examination) checkBrokers(ctx context.Context) []sink.Finding {
	var found []sink.Finding
	for i, v := range e.connectAll(ctx, e.opts.Brokers) {
		addr := e.opts.Brokers[i]
		if v.err != nil {
			found = append(found, sink.Finding{Name: "broker", Detail: oneLine(v.err), Fix: fixDial(v.err)})
			continue
		}
		did := "connected to"
		if e.opts.SASL != nil {
			did = "logged in at"
		}
		found = append(found, sink.Finding{Name: "broker", OK: true, Detail: fmt.Sprintf("%s %s, of cluster %s with %d brokers", did, addr, v.cluster.ClusterID, len(v.cluster.Brokers))})
		e.reached = append(e.reached, addr)
		if e.conn != nil {
			v.conn.Close()
			continue
		}
		e.conn, e.cluster = v.conn, v.cluster
	}
	for i := range found {
		found[i].Warn = !found[i].OK && e.conn != nil
	}
	return found
}

// visitResult is the result of connecting to an address and asking for the cluster's brokers.
type visitResult struct {
	conn    *kafkaclient.Conn // nil when err is set
	cluster *metadata.Response
	err     error
}

// connectAll connects to all addresses at once, so that several that do not answer take no longer
// than one. The caller closes the connections.
func (e *examination) connectAll(ctx context.Context, addrs []string) []visitResult {
	visits := make([]visitResult, len(addrs))
	var under sync.WaitGroup
	for i, addr := range addrs {
		under.Go(func() {
			v := &visits[i]
			if v.conn, v.err = kafkaclient.Dial(ctx, &e.opts.DialOptions, addr); v.err != nil {
				return
			}
			v.cluster, v.err = kafkaclient.RoundTripAs[*metadata.Response](ctx, v.conn, kafkaclient.ControlTimeout, &metadata.Request{TopicNames: []string{}})
		})
	}
	under.Wait()
	return visits
}

// checkAdvertised checks the addresses that the brokers advertise, because all events are published
// there. Each address that is not reached is a finding of its own.
func (e *examination) checkAdvertised(ctx context.Context) []sink.Finding {
	const name = "advertised addresses"
	var nodes []int32
	var addrs []string
	for _, b := range e.cluster.Brokers {
		addr := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		if !slices.Contains(e.reached, addr) {
			nodes, addrs = append(nodes, b.NodeID), append(addrs, addr)
		}
	}
	var found []sink.Finding
	for i, v := range e.connectAll(ctx, addrs) {
		if v.err == nil {
			v.conn.Close()
			continue
		}
		found = append(found, sink.Finding{
			Name: name, Detail: fmt.Sprintf("broker %d advertises %s: %s", nodes[i], addrs[i], oneLine(v.err)), Fix: fixAdvertised(v.err),
		})
	}
	if found == nil {
		found = []sink.Finding{{Name: name, OK: true, Detail: "every broker is reached at the address that it advertises"}}
	}
	return found
}

// checkProducerID asks for a producer id, which every batch carries. A broker that has just started
// has none to give yet.
func (e *examination) checkProducerID(ctx context.Context) sink.Finding {
	f := sink.Finding{Name: "producer id"}
	for give := time.Now().Add(producerPatience); ; {
		res, err := kafkaclient.RoundTripAs[*initproducerid.Response](ctx, e.conn, kafkaclient.ControlTimeout, &initproducerid.Request{ProducerID: kafkaclient.None, ProducerEpoch: kafkaclient.None})
		if err != nil {
			f.Detail, f.Fix = oneLine(err), e.fixSilence()
			return f
		}
		switch code := kafkago.Error(res.ErrorCode); {
		case code == 0:
			f.OK, f.Detail = true, "this user may write with idempotence"
		case code == kafkago.ClusterAuthorizationFailed, code == kafkago.TopicAuthorizationFailed:
			f.Detail = kafkaclient.ErrorText(res.ErrorCode, "")
			f.Fix = e.grantCommand("TOPIC") + "; a broker before 2.8 wants --operation IdempotentWrite --cluster besides"
		case time.Now().Before(give) && kafkaclient.Sleep(ctx, producerPatience/50):
			continue
		default:
			// a broker gets producer ids from the controllers
			f.Warn, f.Detail = true, kafkaclient.ErrorText(res.ErrorCode, "")
			f.Fix = fmt.Sprintf("see that the controllers have a leader: kafka-metadata-quorum.sh %s describe --status", e.connectOptions())
		}
		return f
	}
}

// producerPatience is how long checkProducerID asks a broker for a producer id.
const producerPatience = 5 * time.Second

// checkLogin warns of a password that is sent over a network without TLS. A login that is refused
// is a finding of its address.
func (e *examination) checkLogin() []sink.Finding {
	if e.login == nil || e.opts.TLS != nil {
		return nil
	}
	return clearLogin(e.login.Mechanism, e.opts.Brokers)
}

// clearLogin warns of a login without TLS, unless all brokers are on this machine. SCRAM does not
// send the password itself, but what it sends is enough to try out passwords elsewhere.
func clearLogin(mechanism string, brokers []string) []sink.Finding {
	if !slices.ContainsFunc(brokers, isRemote) {
		return nil
	}
	detail := "the password crosses the network as it is"
	switch mechanism {
	case "plain":
	case oauthBearer:
		detail = "the token crosses the network as it is"
	default:
		detail = "whoever is in between can try out passwords at leisure"
	}
	return []sink.Finding{{
		Name: "login", Warn: true, Detail: "sasl.mechanism " + mechanism + " without TLS: " + detail + ", and reads the events",
		Fix: "sink.kafka.tls: {enabled: true}, with the brokers' SASL_SSL port, and sink.kafka.tls.ca for a CA of your own",
	}}
}

func isRemote(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !sink.Loopback(host)
}

const (
	topicResource = 2 // of DescribeConfigs (org.apache.kafka.common.config.ConfigResource.Type)
	// of org.apache.kafka.common.acl.AclOperation, bits of the authorized operations
	readOperation  = 3
	writeOperation = 4

	maxTopics = 20 // topics of a template that are examined at most
)

// checkTopics examines the topic of all events, or the existing topics of a template.
func (e *examination) checkTopics(ctx context.Context) []sink.Finding {
	name, constant := e.topicName.Constant()
	asked := []string{name}
	if !constant {
		// nil asks for all topics that this user may describe
		name, asked = e.topicName.String(), nil
	}
	res, err := kafkaclient.RoundTripAs[*metadata.Response](ctx, e.conn, kafkaclient.ControlTimeout, &metadata.Request{
		TopicNames: asked, IncludeTopicAuthorizedOperations: true,
	})
	switch {
	case err != nil:
		return []sink.Finding{{Name: topicTitle(name), Detail: "no answer: " + oneLine(err), Fix: e.fixSilence()}}
	case constant && len(res.Topics) == 1:
		return e.checkEach(ctx, res.Topics)
	}
	return e.checkMatching(ctx, res.Topics)
}

// checkMirror examines the topic of the mirror. Delivery does not depend on it.
func (e *examination) checkMirror(ctx context.Context, mirror string) []sink.Finding {
	if mirror == "" {
		return nil
	}
	var f sink.Finding
	res, err := kafkaclient.RoundTripAs[*metadata.Response](ctx, e.conn, kafkaclient.ControlTimeout, &metadata.Request{
		TopicNames: []string{mirror}, IncludeTopicAuthorizedOperations: true,
	})
	if err != nil || len(res.Topics) != 1 {
		f.Detail, f.Fix = "no answer", e.fixSilence()
	} else {
		f = e.checkEach(ctx, res.Topics)[0]
	}
	f.Name, f.Warn = fmt.Sprintf("mirror topic %q", mirror), !f.OK
	return []sink.Finding{f}
}

// checkMatching examines topics that an event can name by the template, the first maxTopics by
// name. Which of them events will name is not known, so one that can be written to is enough.
func (e *examination) checkMatching(ctx context.Context, all []metadata.ResponseTopic) []sink.Finding {
	template := e.topicName.String()
	fits := namePattern(template)
	topics := slices.DeleteFunc(all, func(t metadata.ResponseTopic) bool { return t.IsInternal || !fits.MatchString(t.Name) })
	if len(topics) == 0 {
		return []sink.Finding{{
			Name: topicTitle(template), Warn: true,
			Detail: "there is no such topic that this user may describe; events wait until theirs is there",
			Fix:    e.createCommand(exampleName(template)) + "; or " + e.grantCommand(exampleName(template)),
		}}
	}
	slices.SortFunc(topics, func(a, b metadata.ResponseTopic) int { return cmp.Compare(a.Name, b.Name) })
	found := e.checkEach(ctx, topics[:min(len(topics), maxTopics)])
	usable := slices.ContainsFunc(found, func(f sink.Finding) bool { return f.OK || f.Warn })
	for i := range found {
		found[i].Warn = !found[i].OK && (found[i].Warn || usable)
	}
	// topics that are made from keys are shown as their template, so their findings are the same
	found = slices.Compact(found)
	if more := len(topics) - maxTopics; more > 0 {
		found = append(found, sink.Finding{Name: topicTitle(template), OK: true, Detail: fmt.Sprintf("there are %d more topics like these: not examined", more)})
	}
	return found
}

// namePattern returns a pattern that matches all names which a template can give.
func namePattern(template string) *regexp.Regexp {
	constant := placeholder().Split(template, -1)
	for i, text := range constant {
		constant[i] = regexp.QuoteMeta(text)
	}
	return regexp.MustCompile("^" + strings.Join(constant, ".*") + "$")
}

// exampleName returns a name of the template, with capitals in the place of values.
func exampleName(template string) string {
	return placeholder().ReplaceAllStringFunc(template, func(p string) string {
		return strings.ToUpper(strings.TrimPrefix(strings.Trim(p, "{}"), "column:"))
	})
}

// checkEach checks topics, with one finding for each.
func (e *examination) checkEach(ctx context.Context, topics []metadata.ResponseTopic) []sink.Finding {
	all := e.readSettings(ctx, topics)
	var found []sink.Finding
	for i := range topics {
		found = append(found, e.checkTopic(&topics[i], all[topics[i].Name]))
	}
	return found
}

// checkTopic checks a topic by its metadata and settings. It writes nothing, not even to see
// whether that is allowed.
func (e *examination) checkTopic(t *metadata.ResponseTopic, set topicSettings) sink.Finding {
	// The name for commands. A topic that is made from keys must not be shown, so it gets an
	// example.
	name := t.Name
	if e.layout.Personal {
		name = exampleName(e.topicName.String())
	}
	f := sink.Finding{Name: topicTitle(e.layout.Shown(t.Name))}
	switch code := kafkago.Error(t.ErrorCode); {
	case code == kafkago.UnknownTopicOrPartition:
		f.Detail, f.Fix = "does not exist", e.createCommand(name)
		return f
	case code == kafkago.TopicAuthorizationFailed:
		f.Detail, f.Fix = kafkaclient.ErrorText(t.ErrorCode, ""), e.grantCommand(name)
		return f
	case code != 0 && len(t.Partitions) == 0:
		f.Detail, f.Fix = kafkaclient.ErrorText(t.ErrorCode, ""), "see what the brokers know of it: "+e.describeCommand(name)
		return f
	case isDenied(writeOperation, t.TopicAuthorizedOperations):
		f.Detail, f.Fix = "exists, and this user may not write to it", e.grantCommand(name)
		return f
	}
	replicas, inSync, leaderless := replicaCounts(t.Partitions)
	f.Detail = fmt.Sprintf("%d partitions, %d replicas%s", len(t.Partitions), replicas, set)
	switch least := set.number("min.insync.replicas"); {
	case leaderless > 0:
		f.Detail += fmt.Sprintf("; partitions without a leader: %d", leaderless)
		f.Fix = e.fixLagging(t, name)
	case replicas < least:
		f.Detail += "; a partition can never have that many in sync, and takes nothing"
		f.Fix = "give it more replicas by kafka-reassign-partitions.sh, or: " + e.minInSyncCommand(name, replicas)
	case inSync < least:
		f.Detail += fmt.Sprintf("; a partition has %d in sync, and takes nothing", inSync)
		f.Fix = e.fixLagging(t, name)
	case replicas == 1 && len(e.cluster.Brokers) > 1:
		f.Warn, f.Detail = true, f.Detail+"; what is confirmed is lost with one broker"
		f.Fix = "give it three replicas by kafka-reassign-partitions.sh; then: " + e.minInSyncCommand(name, 2)
	case replicas > 2 && least == 1:
		f.Warn, f.Detail = true, f.Detail+"; what is confirmed may be on the leader alone"
		f.Fix = e.minInSyncCommand(name, 2)
	case e.readBack && isDenied(readOperation, t.TopicAuthorizedOperations):
		f.Warn, f.Detail = true, f.Detail+"; this user may not read it, so what was on its way in a crash is sent again"
		f.Fix = e.grantCommand(name) + "; or sink.kafka.read_back: false"
	default:
		f.OK = true
	}
	return f
}

// isDenied reports whether the user lacks a right on a topic, by its authorized operations. Brokers
// that do not report these answer 0 or the least number.
func isDenied(right int, operations int32) bool {
	return operations > 0 && operations&(1<<right) == 0
}

// replicaCounts returns the least number of replicas and of replicas in sync that any partition
// has, and how many partitions have no leader.
func replicaCounts(partitions []metadata.ResponsePartition) (replicas, inSync, leaderless int) {
	for i, p := range partitions {
		if i == 0 {
			replicas, inSync = len(p.ReplicaNodes), len(p.IsrNodes)
		}
		replicas, inSync = min(replicas, len(p.ReplicaNodes)), min(inSync, len(p.IsrNodes))
		if p.LeaderID < 0 {
			leaderless++
		}
	}
	return replicas, inSync, leaderless
}

// topicSettings are the settings of a topic as names and values. If they could not be read, unseen
// says why.
type topicSettings struct {
	values [][2]string
	unseen string
}

// readSettings reads the topics' settings that matter to the relay. That needs a right which the
// relay itself does not need.
func (e *examination) readSettings(ctx context.Context, topics []metadata.ResponseTopic) map[string]topicSettings {
	req := new(describeconfigs.Request)
	all := map[string]topicSettings{}
	for _, t := range topics {
		req.Resources = append(req.Resources, describeconfigs.RequestResource{
			ResourceType: topicResource, ResourceName: t.Name, ConfigNames: []string{"min.insync.replicas", "max.message.bytes"},
		})
		all[t.Name] = topicSettings{unseen: "the broker has not answered"}
	}
	res, err := kafkaclient.RoundTripAs[*describeconfigs.Response](ctx, e.conn, kafkaclient.ControlTimeout, req)
	if err != nil {
		return all
	}
	for _, r := range res.Resources {
		var s topicSettings
		switch kafkago.Error(r.ErrorCode) {
		case 0:
		case kafkago.TopicAuthorizationFailed, kafkago.ClusterAuthorizationFailed:
			s.unseen = "this user lacks the right DescribeConfigs"
		default:
			s.unseen = kafkaclient.ErrorText(r.ErrorCode, r.ErrorMessage)
		}
		for _, entry := range r.ConfigEntries {
			s.values = append(s.values, [2]string{entry.ConfigName, entry.ConfigValue})
		}
		all[r.ResourceName] = s
	}
	return all
}

// number returns the value of a setting, or 0 when it is not known.
func (s topicSettings) number(name string) int {
	for _, setting := range s.values {
		if setting[0] == name {
			n, _ := strconv.Atoi(setting[1]) //nolint:errcheck // then it is unknown
			return n
		}
	}
	return 0
}

// String returns the settings as the end of a list.
func (s topicSettings) String() string {
	if s.unseen != "" {
		return ", the largest message and min.insync.replicas not visible: " + s.unseen
	}
	var out strings.Builder
	for _, setting := range s.values {
		fmt.Fprintf(&out, ", %s %s", setting[0], setting[1])
	}
	return out.String()
}

// fixRefusal returns the fix when a server answers but refuses the connection; "" for any other
// error.
func fixRefusal(err error) string {
	var token *sink.TokenError
	switch {
	case errors.As(err, &token):
		return token.Fix()
	case sink.FixTLS("sink.kafka.tls", err) != "":
		return sink.FixTLS("sink.kafka.tls", err)
	case errors.Is(err, kafkaclient.ErrOtherCluster):
		return "let sink.kafka.brokers lead to that cluster again, or restart the relay to publish to the other one"
	case errors.Is(err, kafkaclient.ErrTooOld):
		return "upgrade the brokers: sink.kafka needs Kafka 0.11, with sink.kafka.sasl 1.0, and with sink.kafka.compression: zstd 2.1"
	case errors.Is(err, kafkaclient.ErrNoMechanism):
		return "set sink.kafka.sasl.mechanism to one that the listener has, let sink.kafka.brokers name a port that has this one, or enable it there: sasl.enabled.mechanisms"
	case errors.Is(err, kafkaclient.ErrNoLogin):
		return "leave sink.kafka.sasl out, or let sink.kafka.brokers name a port with a login"
	case errors.Is(err, kafkaclient.ErrLogin):
		return "check sink.kafka.sasl: mechanism, username and password"
	case errors.Is(err, kafkaclient.ErrWantsTLS):
		return "set sink.kafka.tls.enabled: true, or use a port without TLS"
	case errors.Is(err, kafkaclient.ErrWantsLogin):
		return "set sink.kafka.sasl, or use a port without a login"
	case errors.Is(err, kafkaclient.ErrNoTLS):
		return "the port does not speak TLS: use the brokers' TLS port, or leave sink.kafka.tls out"
	}
	return ""
}

// explain returns err in one line, with the fix if the server has refused the connection.
func explain(err error) string {
	if fix := fixRefusal(err); fix != "" {
		return oneLine(err) + "; " + fix
	}
	return oneLine(err)
}

// ephemeral matches the parts of an error's text that differ at every connect: the local end of a
// socket, and the time in the error about an expired certificate.
var ephemeral = lazy.Regexp(`[^ ]+:\d+->|current time \S+ is `)

// oneLine returns err in one line. The line is the same for the same cause.
func oneLine(err error) string {
	return strings.ReplaceAll(ephemeral().ReplaceAllString(err.Error(), ""), "\n", "; ")
}

// fixDial returns the fix for a connection that cannot be made.
func fixDial(err error) string {
	var network *net.OpError
	var file *fs.PathError
	fix := fixRefusal(err)
	switch {
	case fix != "":
		return fix
	case errors.As(err, &network):
		return "check sink.kafka.brokers, that Kafka runs, and that no firewall is in between"
	case errors.As(err, &file):
		return "correct the path in sink.kafka, or let the relay's user read the file"
	case errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded):
		return "compare sink.kafka.tls and sasl with what the port expects: listener.security.protocol.map of the broker"
	}
	return "correct what this line names in sink.kafka, or give sink.kafka.brokers another port of the brokers"
}

// fixAdvertised returns the fix for a broker that is not reached at its advertised address.
func fixAdvertised(err error) string {
	if fix := fixRefusal(err); fix != "" {
		return fix
	}
	return "make that address reachable from here, or correct advertised.listeners of that broker"
}

// fixSilence returns the fix for a broker that stopped answering.
func (e *examination) fixSilence() string {
	return "check the log of the broker at " + e.conn.Addr + " for why it hung up or did not answer"
}

// connectOptions returns the options by which the commands of a fix reach the cluster. With TLS or
// a login they need a file that docs/kafka.md#rights describes.
func (e *examination) connectOptions() string {
	if e.opts.TLS != nil || e.opts.SASL != nil {
		return "--bootstrap-server " + e.conn.Addr + " --command-config admin.properties"
	}
	return "--bootstrap-server " + e.conn.Addr
}

// principal returns the relay's name in an ACL. A name from a certificate is not known here,
// because the brokers map it (ssl.principal.mapping.rules).
func (e *examination) principal() string {
	if e.login != nil && e.login.Username != "" {
		return "User:" + e.login.Username
	}
	return "User:NAME"
}

// grantCommand returns the command that gives the documented rights: to all topics with the
// template's prefix, or to the given topic.
func (e *examination) grantCommand(topic string) string {
	pattern := ""
	if prefix, _, placeholders := strings.Cut(e.topicName.String(), "{"); placeholders && prefix != "" {
		topic, pattern = prefix, " --resource-pattern-type prefixed"
	}
	read := ""
	if e.readBack {
		read = " --operation Read"
	}
	return fmt.Sprintf("grant the right: kafka-acls.sh %s --add --allow-principal %s --operation Write --operation Describe%s --topic %s%s",
		e.connectOptions(), e.principal(), read, topic, pattern)
}

// createCommand returns the command that creates a topic with three replicas, or with as many as
// the cluster has brokers if these are fewer.
func (e *examination) createCommand(name string) string {
	replicas := min(3, max(1, len(e.cluster.Brokers)))
	return fmt.Sprintf("create it: kafka-topics.sh %s --create --topic %s --partitions 12 --replication-factor %d --config min.insync.replicas=%d",
		e.connectOptions(), name, replicas, max(1, replicas-1))
}

// minInSyncCommand returns the command that sets min.insync.replicas of a topic.
func (e *examination) minInSyncCommand(topic string, n int) string {
	return fmt.Sprintf("kafka-configs.sh %s --alter --topic %s --add-config min.insync.replicas=%d", e.connectOptions(), topic, n)
}

// describeCommand returns the command that shows a topic.
func (e *examination) describeCommand(topic string) string {
	return fmt.Sprintf("kafka-topics.sh %s --describe --topic %s", e.connectOptions(), topic)
}

// fixLagging returns the fix for replicas of a topic that are not in sync.
func (e *examination) fixLagging(t *metadata.ResponseTopic, name string) string {
	var away []string
	for _, p := range t.Partitions {
		for _, node := range p.OfflineReplicas {
			if id := strconv.Itoa(int(node)); !slices.Contains(away, id) {
				away = append(away, id)
			}
		}
	}
	if len(away) == 0 { // its brokers run and lag, or are not reported (before Kafka 1.0)
		return "bring its replicas in sync; which ones lag: " + e.describeCommand(name)
	}
	return "bring back broker " + strings.Join(away, ", ")
}
