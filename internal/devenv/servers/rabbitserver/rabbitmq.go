// Package rabbitserver runs real RabbitMQ brokers.
package rabbitserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/testcerts"
)

// Options says how to start a broker.
type Options struct {
	Config map[string]string // more lines of rabbitmq.conf
	// Management starts the management plugin: virtual hosts and rights by its API cost nothing, by
	// rabbitmqctl a second each.
	Management bool
	// a TLS listener besides, with their Server, that wants a client certificate of their CA
	Certs *testcerts.Certificates
	// the broker takes this issuer's tokens for the audience "rabbitmq", next to its own users
	Issuer *issuer.Issuer
}

// Rabbit is a private broker: user guest with password guest, virtual host /, no plugins. The zero
// value is not usable. Its methods may be called from several goroutines, except Stop, Start, Kill
// and Close.
type Rabbit struct {
	install
	Url    *url.URL // of the virtual host /
	dir    string
	node   string
	cookie string
	ports  struct{ amqp, amqps, dist, epmd, management int }
	Api    string // address of the management plugin; "": it has none
	epmd   *processes.Process
	Server *processes.Process // nil: the broker is not ours
	// it is used by all tests of the process: none may stop or reconfigure it
	Lent bool
}

// mayChange is nil when this process may stop and reconfigure the broker.
func (r *Rabbit) mayChange() error {
	switch {
	case r.Server == nil:
		return processes.ErrNotOurs
	case r.Lent:
		return errLent
	}
	return nil
}

var errLent = errors.New("the broker is used by all tests of the process; take OwnRabbitMQ or StartRabbitMQ")

// Start starts a broker with fresh data, of its own node name, directories, cookie and ports of
// 127.0.0.1. It returns when the broker takes connections.
//
// The Erlang port mapper (epmd) is our own child on a port of its own: one that the broker starts
// would leave its process group and stay for ever.
func Start(ctx context.Context, opt Options) (*Rabbit, error) {
	return startRabbitMQ(ctx, opt, nil)
}

// startRabbitMQ starts a broker that can be joined to another one, if there is one: it has the same
// cookie and port mapper.
func startRabbitMQ(ctx context.Context, opt Options, other *Rabbit) (*Rabbit, error) {
	found, err := findRabbitMQ()
	if err != nil {
		return nil, err
	}
	dir, err := processes.NewDir("rabbitmq")
	if err != nil {
		return nil, err
	}
	r := &Rabbit{install: found, dir: dir, cookie: rand.Text()}
	if other != nil {
		r.cookie, r.epmd, r.ports.epmd = other.cookie, other.epmd, other.ports.epmd
	}
	if err := r.prepare(opt); err != nil {
		return nil, err
	}
	if err := r.Start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// prepare chooses the ports and writes the files.
func (r *Rabbit) prepare(opt Options) (err error) {
	for _, port := range []*int{&r.ports.amqp, &r.ports.amqps, &r.ports.dist, &r.ports.epmd, &r.ports.management} {
		if *port != 0 {
			continue
		}
		if *port, err = processes.UnusedPort(); err != nil {
			return err
		}
	}
	r.node = fmt.Sprintf("cdc%d@localhost", r.ports.amqp)
	r.Url = &url.URL{Scheme: "amqp", User: url.UserPassword("guest", "guest"), Host: fmt.Sprintf("127.0.0.1:%d", r.ports.amqp), Path: "/"}
	conf := []string{
		fmt.Sprintf("listeners.tcp.1 = 127.0.0.1:%d", r.ports.amqp),
		"log.file = false",
		"log.console = true",
		"log.console.level = info",
	}
	if opt.Certs != nil {
		conf = append(conf,
			fmt.Sprintf("listeners.ssl.1 = 127.0.0.1:%d", r.ports.amqps),
			"ssl_options.cacertfile = "+opt.Certs.CA,
			"ssl_options.certfile = "+opt.Certs.Server.Cert,
			"ssl_options.keyfile = "+opt.Certs.Server.Key,
			"ssl_options.verify = verify_peer",
			"ssl_options.fail_if_no_peer_cert = true",
		)
	}
	var plugins []string
	if opt.Management {
		plugins, r.Api = append(plugins, "rabbitmq_management"), fmt.Sprintf("http://127.0.0.1:%d", r.ports.management)
		conf = append(conf, "management.tcp.ip = 127.0.0.1", fmt.Sprintf("management.tcp.port = %d", r.ports.management),
			"management_agent.disable_metrics_collector = true")
	}
	if opt.Issuer != nil {
		plugins = append(plugins, "rabbitmq_auth_backend_oauth2")
		lines, err := r.trust(opt.Issuer)
		if err != nil {
			return err
		}
		conf = append(conf, lines...)
	}
	for name, value := range opt.Config {
		conf = append(conf, name+" = "+value)
	}
	for name, text := range map[string]string{
		"rabbitmq.conf":   strings.Join(conf, "\n") + "\n",
		"advanced.config": `[{kernel, [{inet_dist_use_interface, {127,0,0,1}}]}].`,
		"enabled_plugins": "[" + strings.Join(plugins, ", ") + "].",
		".erlang.cookie":  r.cookie,
	} {
		mode := os.FileMode(0o644)
		if name == ".erlang.cookie" {
			mode = 0o400
		}
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), mode); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// trust writes the key of an issuer, and returns the lines of rabbitmq.conf that use it.
func (r *Rabbit) trust(i *issuer.Issuer) ([]string, error) {
	key, err := i.PublicKey()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.dir, "issuer.pem")
	if err := os.WriteFile(path, key, 0o644); err != nil {
		return nil, fmt.Errorf("write the issuer's key: %w", err)
	}
	return []string{
		"auth_backends.1 = rabbit_auth_backend_internal",
		"auth_backends.2 = rabbit_auth_backend_oauth2",
		"auth_oauth2.resource_server_id = rabbitmq",
		"auth_oauth2.default_key = " + issuer.KeyID,
		"auth_oauth2.signing_keys." + issuer.KeyID + " = " + path,
	}, nil
}

func (r *Rabbit) env() []string {
	in := func(name string) string { return filepath.Join(r.dir, name) }
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"LANG=C.UTF-8",
		"HOME=" + r.dir, // where the cookie is
		fmt.Sprintf("ERL_EPMD_PORT=%d", r.ports.epmd),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=" + r.node,
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", r.ports.dist),
		"RABBITMQ_MNESIA_BASE=" + in("mnesia"),
		"RABBITMQ_LOG_BASE=" + in("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_PID_FILE=" + in("pid"),
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_CONFIG_FILE=" + in("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + in("advanced.config"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + in("enabled_plugins"),
		// the script then becomes the Erlang VM instead of waiting for it
		"RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none +A 16",
	}
}

// Start starts the broker again after Stop or Kill, on the same ports and data, and returns when it
// takes connections.
func (r *Rabbit) Start(ctx context.Context) (err error) {
	if r.Server.Running() {
		return fmt.Errorf("start RabbitMQ: it runs already")
	}
	if !r.epmd.Running() {
		epmd := r.command(context.Background(), "epmd", "-port", fmt.Sprint(r.ports.epmd), "-address", "127.0.0.1")
		epmd.Env = r.env()
		if r.epmd, err = processes.Start("epmd", epmd, filepath.Join(r.dir, "epmd.log")); err != nil {
			return err
		}
	}
	server := r.command(context.Background(), r.script("rabbitmq-server"))
	server.Env, server.Dir = r.env(), r.dir
	if r.Server, err = processes.Start("RabbitMQ", server, r.logPath()); err != nil {
		return err
	}
	return r.Server.Ready(ctx, func(ctx context.Context) bool {
		until, _ := ctx.Deadline()
		conn, err := amqp.DialConfig(r.URL(), amqp.Config{Heartbeat: 10 * time.Second, Dial: amqp.DefaultDial(time.Until(until))})
		if err != nil {
			return false
		}
		return conn.CloseDeadline(time.Now().Add(10*time.Second)) == nil && r.managementAnswers(ctx)
	})
}

// Reconfigure sets a line of rabbitmq.conf, which the broker obeys from its next start on.
func (r *Rabbit) Reconfigure(name, value string) error {
	if err := r.mayChange(); err != nil {
		return fmt.Errorf("reconfigure RabbitMQ: %w", err)
	}
	path := filepath.Join(r.dir, "rabbitmq.conf")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reconfigure RabbitMQ: %w", err)
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool {
		return strings.HasPrefix(line, name+" =")
	})
	lines = append(lines, name+" = "+value)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("reconfigure RabbitMQ: %w", err)
	}
	return nil
}

// Stop shuts the broker down in order and waits until it has ended.
func (r *Rabbit) Stop(ctx context.Context) error {
	if err := r.mayChange(); err != nil {
		return fmt.Errorf("stop RabbitMQ: %w", err)
	}
	if err := r.Server.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return r.Server.Wait(ctx)
}

// Kill ends the broker by SIGKILL.
func (r *Rabbit) Kill() error {
	if err := r.mayChange(); err != nil {
		return fmt.Errorf("kill RabbitMQ: %w", err)
	}
	return r.Server.Kill()
}

// Close ends the broker and its epmd and removes its data.
func (r *Rabbit) Close() error {
	for _, p := range []*processes.Process{r.Server, r.epmd} {
		if p.Running() {
			if err := p.Kill(); err != nil {
				return err
			}
		}
	}
	if r.dir == "" {
		return nil
	}
	return processes.RemoveDir(r.dir)
}

// URL is the address of the virtual host /, with user and password.
func (r *Rabbit) URL() string { return r.Url.String() }

// Addr is host:port.
func (r *Rabbit) Addr() string { return r.Url.Host }

// TLSAddr is host:port of the TLS listener of Options.Certs.
func (r *Rabbit) TLSAddr() string { return fmt.Sprintf("127.0.0.1:%d", r.ports.amqps) }

func (r *Rabbit) logPath() string { return filepath.Join(r.dir, "server.log") }

// Log is everything the broker has written.
func (r *Rabbit) Log() string {
	if r.dir == "" {
		return ""
	}
	return processes.ReadLog(r.logPath())
}

// OnChannel calls do with a channel of a connection of its own.
func (r *Rabbit) OnChannel(do func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(r.URL())
	if err != nil {
		return fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	return do(ch)
}
