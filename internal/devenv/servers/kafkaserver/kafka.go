// Package kafkaserver runs real Kafka brokers, one or several.
package kafkaserver

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// Options says how to start a cluster.
type Options struct {
	// brokers, each of them a controller, too; 0: one. Their ids are 1, 2, ...
	Nodes int
	// more lines of each node's server.properties; they win over ours
	Settings map[string]string
	// ACLs are obeyed; who is named in none may do everything. For Deny
	Authorizer bool
	// ways through proxies: so many more listeners on each node, each advertised at a Proxy of its
	// own
	Proxied int
	Secure  bool // listeners with TLS and SASL besides
	// of the SASL listeners, name to password; nil: relay with password "relay secret"
	Users map[string]string
	Certs *testcerts.Certificates // of the TLS listeners; nil: new ones
	Java  []string                // more arguments of java, after ours: "-Xmx512m"
	// a listener besides that takes the tokens of this issuer for the audience "kafka"; the user is
	// the client. The issuer must run
	Issuer *issuer.Issuer
}

// Kafka is a private cluster of Apache Kafka in KRaft mode. Topics are not created automatically,
// leaders do not move by themselves, and only a replica in sync becomes leader. A client without a
// login is User:ANONYMOUS, a user is User:name, a client certificate is User: and its distinguished
// name. The zero value is not usable.
//
// Its methods may be called from several goroutines, except StopNode, StartNode, KillNode and
// Close. Those that change something return when all running brokers know.
type Kafka struct {
	Bootstrap []string // of a cluster that is not ours
	opt       Options
	install   kafkaInstall
	clusterID string
	nodes     []*kafkaNode // in the order of their ids, from 1; none: the cluster is not ours
	Ways      []string     // of the shared cluster, lent to tests; none otherwise
}

// Start starts a cluster with fresh data on free ports of 127.0.0.1, and returns when all of its
// brokers take requests.
func Start(ctx context.Context, opt Options) (*Kafka, error) {
	install, err := findKafka()
	if err != nil {
		return nil, err
	}
	opt.Nodes = max(opt.Nodes, 1)
	if opt.Users == nil {
		opt.Users = map[string]string{"relay": "relay secret"}
	}
	if opt.Secure && opt.Certs == nil {
		if opt.Certs, err = testcerts.NewCertificates(); err != nil {
			return nil, err
		}
	}
	if opt.Issuer != nil {
		opt.Java = append(slices.Clone(opt.Java), "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="+opt.Issuer.KeysURL())
	}
	k := &Kafka{opt: opt, install: install, clusterID: kafkaUUID()}
	if err := k.start(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kafka) start(ctx context.Context) error {
	for id := 1; id <= k.opt.Nodes; id++ {
		n, err := newKafkaNode(id, k.opt)
		if n != nil {
			k.nodes = append(k.nodes, n)
		}
		if err != nil {
			return err
		}
	}
	for _, n := range k.nodes {
		if err := k.format(n); err != nil {
			return err
		}
	}
	for _, n := range k.nodes {
		if err := n.start(k.install, k.opt.Java); err != nil {
			return err
		}
	}
	for _, n := range k.nodes {
		if err := k.answers(ctx, n); err != nil {
			return err
		}
	}
	if k.opt.Secure {
		return k.addUsers(ctx)
	}
	return nil
}

// kafkaUUID is a random id as Kafka writes them: 16 bytes in URL-safe base64, not beginning with a
// dash.
func kafkaUUID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id)
}

// Close ends all nodes and their proxies and removes their data.
func (k *Kafka) Close() error {
	var errs []error
	for _, n := range k.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// Certs are the certificates of the TLS listeners; nil without Secure.
func (k *Kafka) Certs() *testcerts.Certificates { return k.opt.Certs }

// Nodes is how many brokers the cluster has, running or not; 0: the cluster is not ours.
func (k *Kafka) Nodes() int { return len(k.nodes) }

func (k *Kafka) node(id int) (*kafkaNode, error) {
	if len(k.nodes) == 0 {
		return nil, processes.ErrNotOurs
	}
	if id < 1 || id > len(k.nodes) {
		return nil, fmt.Errorf("there is no node %d", id)
	}
	return k.nodes[id-1], nil
}

// StopNode shuts a node down in order, with its leaders handed over, and waits until it has ended.
func (k *Kafka) StopNode(ctx context.Context, id int) error {
	n, err := k.node(id)
	if err == nil {
		err = n.stop(ctx)
	}
	if err != nil {
		return fmt.Errorf("stop Kafka node %d: %w", id, err)
	}
	return nil
}

// KillNode ends a node by SIGKILL. Others lead its partitions some three seconds later.
func (k *Kafka) KillNode(id int) error {
	n, err := k.node(id)
	if err == nil && n.server.Running() {
		err = n.server.Kill()
	}
	if err != nil {
		return fmt.Errorf("kill Kafka node %d: %w", id, err)
	}
	return nil
}

// StartNode starts a node again, on the same ports and data, and returns when it takes requests.
// Its replicas may still be behind (WaitInSync).
func (k *Kafka) StartNode(ctx context.Context, id int) error {
	n, err := k.node(id)
	if err == nil && n.server.Running() {
		err = errors.New("it runs already")
	}
	if err == nil {
		err = n.start(k.install, k.opt.Java)
	}
	if err == nil {
		err = k.answers(ctx, n)
	}
	if err != nil {
		return fmt.Errorf("start Kafka node %d: %w", id, err)
	}
	return nil
}

// FreezeNode stops a node's process as it is (SIGSTOP): connections stay open and nothing is
// answered, from its return on.
func (k *Kafka) FreezeNode(id int) error {
	n, err := k.node(id)
	if err != nil {
		return fmt.Errorf("freeze Kafka node %d: %w", id, err)
	}
	return n.Freeze(true)
}

// ThawNode lets it go on.
func (k *Kafka) ThawNode(id int) error {
	n, err := k.node(id)
	if err != nil {
		return fmt.Errorf("thaw Kafka node %d: %w", id, err)
	}
	return n.Freeze(false)
}

// Data is the directory with all that a node stores; "": there is no such node.
func (k *Kafka) Data(id int) string {
	n, err := k.node(id)
	if err != nil {
		return ""
	}
	return filepath.Join(n.dir, "data")
}

// Pid is the process of a node; 0: there is none.
func (k *Kafka) Pid(id int) int {
	n, err := k.node(id)
	if err != nil || !n.server.Running() {
		return 0
	}
	return n.server.Pid()
}

// Log is everything a node has written.
func (k *Kafka) Log(id int) string {
	n, err := k.node(id)
	if err != nil {
		return ""
	}
	return n.log()
}

// Topic makes a topic for one test, with one replica, and returns its name; it is deleted when the
// test ends.
func (k *Kafka) Topic(t testing.TB, partitions int) string {
	t.Helper()
	ctx := context.Background()
	name := "t" + strings.ToLower(rand.Text()[:12])
	if err := k.CreateTopic(ctx, name, partitions, 1, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if len(k.nodes) > 0 && len(k.Running()) == 0 {
			return // it goes with the cluster's directories
		}
		ctx := context.Background()
		if err := k.DeleteTopic(ctx, name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// format makes the node's data directory: what "StorageTool format" does, without a JVM for it. The
// file of the features is the one that StorageTool has written when Kafka was fetched
// (scripts/kafka.sh); it names no cluster and no node.
func (k *Kafka) format(n *kafkaNode) error {
	data := filepath.Join(n.dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	features, err := os.ReadFile(k.install.features)
	if err != nil {
		return fmt.Errorf("read Kafka's features: %w", err)
	}
	properties := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", k.clusterID, n.id, kafkaUUID())
	for name, text := range map[string]string{"meta.properties": properties, "bootstrap.checkpoint": string(features)} {
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return n.writeProperties(k.opt, k.nodes)
}
