// The server.properties of a node.

package kafkaserver

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/issuer"
)

func (n *kafkaNode) writeProperties(opt Options, nodes []*kafkaNode) error {
	if err := os.WriteFile(filepath.Join(n.dir, "server.properties"), []byte(n.properties(opt, nodes)), 0o600); err != nil {
		return fmt.Errorf("write server.properties: %w", err)
	}
	return nil
}

// properties is the whole file. The settings of the options come last: of a name given twice Java
// takes the last.
func (n *kafkaNode) properties(opt Options, nodes []*kafkaNode) string {
	var b strings.Builder
	set := func(name string, value any) { fmt.Fprintf(&b, "%s=%s\n", name, EscapeProperty(fmt.Sprint(value))) }
	n.setListeners(set, nodes)
	setSizes(set, len(nodes))
	if opt.Authorizer {
		setAuthorizer(set)
	}
	if opt.Secure {
		setSecure(set, opt)
	}
	if opt.Issuer != nil {
		setIssuer(set, opt.Issuer)
	}
	for _, name := range slices.Sorted(maps.Keys(opt.Settings)) {
		set(name, opt.Settings[name])
	}
	return b.String()
}

// EscapeProperty writes a value as java.util.Properties reads it.
func EscapeProperty(value string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(value)
}

func (n *kafkaNode) setListeners(set func(string, any), nodes []*kafkaNode) {
	var listen, advertise, protocols, voters []string
	for _, l := range n.listeners {
		listen = append(listen, fmt.Sprintf("%s://127.0.0.1:%d", l.name, l.port))
		protocols = append(protocols, l.name+":"+l.protocol)
		if l.name != "CONTROLLER" {
			advertise = append(advertise, l.name+"://"+n.advertised(l.name))
		}
	}
	for _, other := range nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", other.id, other.addr("CONTROLLER")))
	}
	between := "PLAINTEXT"
	if n.addr("INTERNAL") != "" {
		between = "INTERNAL"
	}
	set("process.roles", "broker,controller")
	set("node.id", n.id)
	set("controller.quorum.voters", strings.Join(voters, ","))
	set("controller.listener.names", "CONTROLLER")
	set("inter.broker.listener.name", between)
	set("listeners", strings.Join(listen, ","))
	set("advertised.listeners", strings.Join(advertise, ","))
	set("listener.security.protocol.map", strings.Join(protocols, ","))
	set("log.dirs", "data")
}

// setSizes makes the node small and quick.
func setSizes(set func(string, any), nodes int) {
	set("auto.create.topics.enable", false)
	set("auto.leader.rebalance.enable", false)
	set("unclean.leader.election.enable", false)
	set("default.replication.factor", nodes)

	set("num.network.threads", 1)
	set("num.io.threads", 2)
	set("background.threads", 1)
	set("num.recovery.threads.per.data.dir", 1)
	set("group.coordinator.threads", 1)
	set("share.coordinator.threads", 1)
	set("log.cleaner.dedupe.buffer.size", 2<<20) // 128 MiB of heap otherwise
	set("log.index.size.max.bytes", 1<<20)
	set("log.segment.delete.delay.ms", 1000)

	set("offsets.topic.num.partitions", 1)
	set("offsets.topic.replication.factor", nodes)
	set("transaction.state.log.num.partitions", 1)
	set("transaction.state.log.replication.factor", nodes)
	set("transaction.state.log.min.isr", 1)
	set("share.coordinator.state.topic.num.partitions", 1)
	set("share.coordinator.state.topic.replication.factor", nodes)
	set("share.coordinator.state.topic.min.isr", 1)
	set("group.initial.rebalance.delay.ms", 0)
	// A killed broker is fenced, and a killed controller replaced, within three seconds; a single
	// one that was killed is not taken back before.
	set("broker.session.timeout.ms", 2500)
	set("broker.heartbeat.interval.ms", 250)
	set("controller.quorum.fetch.timeout.ms", 1000)
	set("controller.quorum.election.timeout.ms", 500)
	set("controller.quorum.election.backoff.max.ms", 300)
}

// setAuthorizer gives the nodes a login of their own: only a super user is served before the ACLs
// are read, and without each other the nodes cannot read them.
func setAuthorizer(set func(string, any)) {
	set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
	set("allow.everyone.if.no.acl.found", true)
	set("super.users", "User:node")
	set("sasl.enabled.mechanisms", "PLAIN")
	set("sasl.mechanism.inter.broker.protocol", "PLAIN")
	set("sasl.mechanism.controller.protocol", "PLAIN")
	for _, listener := range []string{"internal", "controller"} {
		set("listener.name."+listener+".plain.sasl.jaas.config", plainLogin+` username="node" password="node" user_node="node";`)
	}
}

const (
	plainLogin = "org.apache.kafka.common.security.plain.PlainLoginModule required"
	scramLogin = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
)

func setSecure(set func(string, any), opt Options) {
	set("connection.failed.authentication.delay.ms", 0)
	set("ssl.keystore.type", "PEM")
	set("ssl.keystore.location", opt.Certs.Server.Both)
	set("ssl.truststore.type", "PEM")
	set("ssl.truststore.location", opt.Certs.CA)
	set("listener.name.mtls.ssl.client.auth", "required")
	for _, listener := range []string{"sasl", "sasltls"} {
		prefix := "listener.name." + listener + "."
		set(prefix+"sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512")
		set(prefix+"plain.sasl.jaas.config", plainUsers(opt.Users))
		set(prefix+"scram-sha-256.sasl.jaas.config", scramLogin)
		set(prefix+"scram-sha-512.sasl.jaas.config", scramLogin)
	}
}

func setIssuer(set func(string, any), i *issuer.Issuer) {
	const prefix, module = "listener.name.token.", "org.apache.kafka.common.security.oauthbearer."
	set("connection.failed.authentication.delay.ms", 0)
	set(prefix+"sasl.enabled.mechanisms", "OAUTHBEARER")
	set(prefix+"oauthbearer.sasl.jaas.config", module+"OAuthBearerLoginModule required;")
	set(prefix+"oauthbearer.sasl.server.callback.handler.class", module+"OAuthBearerValidatorCallbackHandler")
	set("sasl.oauthbearer.jwks.endpoint.url", i.KeysURL())
	set("sasl.oauthbearer.expected.issuer", i.URL)
	set("sasl.oauthbearer.expected.audience", "kafka")
	set("sasl.oauthbearer.clock.skew.seconds", 0)
}

// plainUsers are the users of PLAIN in JAAS syntax.
func plainUsers(users map[string]string) string {
	var b strings.Builder
	b.WriteString(plainLogin)
	for _, name := range slices.Sorted(maps.Keys(users)) {
		fmt.Fprintf(&b, " user_%s=%q", name, users[name])
	}
	b.WriteString(";")
	return b.String()
}
