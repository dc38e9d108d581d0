// One node: its process, its listeners and its files.

package kafkaserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// kafkaNode is one broker and controller.
type kafkaNode struct {
	id        int
	dir       string
	listeners []kafkaListener
	proxies   []*netproxy.Proxy // of the listeners PROXIED1, PROXIED2, ...
	server    *processes.Process
	frozen    atomic.Bool
}

// kafkaListener is one port of a node.
type kafkaListener struct {
	name     string
	protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
	port     int
}

// newKafkaNode chooses directory and ports, and starts the proxies.
func newKafkaNode(id int, opt Options) (*kafkaNode, error) {
	dir, err := processes.NewDir("kafka")
	if err != nil {
		return nil, err
	}
	n := &kafkaNode{id: id, dir: dir}
	between := "PLAINTEXT" // nodes
	if opt.Authorizer {
		between = "SASL_PLAINTEXT"
	}
	n.listeners = []kafkaListener{{name: "PLAINTEXT", protocol: "PLAINTEXT"}, {name: "CONTROLLER", protocol: between}}
	if opt.Authorizer {
		n.listeners = append(n.listeners, kafkaListener{name: "INTERNAL", protocol: between})
	}
	for i := range opt.Proxied {
		n.listeners = append(n.listeners, kafkaListener{name: proxiedListener(i), protocol: "PLAINTEXT"})
	}
	if opt.Secure {
		n.listeners = append(n.listeners, kafkaListener{name: "TLS", protocol: "SSL"}, kafkaListener{name: "MTLS", protocol: "SSL"},
			kafkaListener{name: "SASL", protocol: "SASL_PLAINTEXT"}, kafkaListener{name: "SASLTLS", protocol: "SASL_SSL"})
	}
	if opt.Issuer != nil {
		n.listeners = append(n.listeners, kafkaListener{name: "TOKEN", protocol: "SASL_PLAINTEXT"})
	}
	for i := range n.listeners {
		if n.listeners[i].port, err = processes.UnusedPort(); err != nil {
			return n, err
		}
	}
	for i := range opt.Proxied {
		p, err := netproxy.Start(n.addr(proxiedListener(i)))
		if err != nil {
			return n, err
		}
		n.proxies = append(n.proxies, p)
	}
	return n, nil
}

func proxiedListener(way int) string { return fmt.Sprintf("PROXIED%d", way+1) }

// addr is where a listener listens; "": there is none of that name.
func (n *kafkaNode) addr(listener string) string {
	for _, l := range n.listeners {
		if l.name == listener {
			return fmt.Sprintf("127.0.0.1:%d", l.port)
		}
	}
	return ""
}

// advertised is the address that clients get.
func (n *kafkaNode) advertised(listener string) string {
	for i, p := range n.proxies {
		if listener == proxiedListener(i) {
			return p.Addr()
		}
	}
	return n.addr(listener)
}

func (n *kafkaNode) start(install kafkaInstall, java []string) (err error) {
	cmd := install.command(java, "kafka.Kafka", "server.properties")
	cmd.Dir = n.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + n.dir}
	n.server, err = processes.Start(fmt.Sprintf("Kafka node %d", n.id), cmd, n.logPath())
	n.frozen.Store(false)
	return err
}

func (n *kafkaNode) stop(ctx context.Context) error {
	if !n.server.Running() {
		return nil
	}
	if err := n.server.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return n.server.Wait(ctx)
}

func (n *kafkaNode) Freeze(on bool) error {
	if !n.server.Running() {
		return fmt.Errorf("stop or continue Kafka node %d: it does not run", n.id)
	}
	n.frozen.Store(on)
	if on {
		return n.server.Freeze()
	}
	return n.server.Signal(syscall.SIGCONT)
}

func (n *kafkaNode) close() error {
	var errs []error
	if n.server.Running() {
		errs = append(errs, n.server.Kill())
	}
	for _, p := range n.proxies {
		p.Close()
	}
	return errors.Join(append(errs, processes.RemoveDir(n.dir))...)
}

func (n *kafkaNode) logPath() string { return filepath.Join(n.dir, "server.log") }

// log is everything the node has written; "" before its first start.
func (n *kafkaNode) log() string {
	if n.server == nil {
		return ""
	}
	return strings.TrimSpace(processes.ReadLog(n.logPath()))
}
