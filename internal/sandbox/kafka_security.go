package sandbox

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// KafkaListener is one more listener for clients and what it demands of them. CLIENT, INTERNAL and CONTROLLER stay as they are: who comes by them is
// User:ANONYMOUS.
type KafkaListener struct {
	// Certificate of the brokers turns TLS on.
	Certificate *Certificate
	// ClientCA is the PEM file of the authority whose certificates clients must show; empty demands none.
	ClientCA string
	// Mechanisms are of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER; none for no login. With OAUTHBEARER Kafka takes unsecured tokens
	// (UnsecuredToken).
	Mechanisms []string
	// Users of PLAIN with their passwords. Those of SCRAM are made with SetUser.
	Users map[string]string
	// Reauthenticate ends a login after so long.
	Reauthenticate time.Duration
	// Proxied puts a Proxy of the listener's own before each broker; see Broker.ListenerProxy.
	Proxied bool
}

func (l KafkaListener) protocol() string {
	switch {
	case l.Certificate != nil && len(l.Mechanisms) > 0:
		return "SASL_SSL"
	case l.Certificate != nil:
		return "SSL"
	case len(l.Mechanisms) > 0:
		return "SASL_PLAINTEXT"
	}
	return "PLAINTEXT"
}

// properties are the broker's settings for the listener.
func (l KafkaListener) properties(name string) map[string]string {
	p := map[string]string{}
	set := func(key, value string) { p["listener.name."+strings.ToLower(name)+"."+key] = value }
	if l.Certificate != nil {
		set("ssl.keystore.type", "PEM")
		set("ssl.keystore.location", l.Certificate.Bundle)
	}
	if l.ClientCA != "" {
		set("ssl.truststore.type", "PEM")
		set("ssl.truststore.location", l.ClientCA)
		set("ssl.client.auth", "required")
	}
	if len(l.Mechanisms) > 0 {
		set("sasl.enabled.mechanisms", strings.Join(l.Mechanisms, ","))
	}
	for _, m := range l.Mechanisms {
		set(strings.ToLower(m)+".sasl.jaas.config", l.jaas(m))
	}
	if l.Reauthenticate > 0 {
		set("connections.max.reauth.ms", strconv.FormatInt(l.Reauthenticate.Milliseconds(), 10))
	}
	return p
}

// jaas is the login module of a mechanism.
func (l KafkaListener) jaas(mechanism string) string {
	const security = "org.apache.kafka.common.security."
	switch mechanism {
	case "PLAIN":
		words := []string{security + "plain.PlainLoginModule required"}
		for _, user := range slices.Sorted(maps.Keys(l.Users)) {
			words = append(words, fmt.Sprintf("user_%s=%q", user, l.Users[user]))
		}
		return strings.Join(words, " ") + ";"
	case "OAUTHBEARER":
		return security + `oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`
	}
	return security + "scram.ScramLoginModule required;"
}

// authorizer are the settings of KafkaOptions.Authorizer.
var authorizer = map[string]string{
	"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
	"super.users":           "User:ANONYMOUS",
}

// ListenerAddrs are the addresses of one of KafkaOptions.Listeners that clients are told, one of each broker.
func (k *Kafka) ListenerAddrs(name string) []string {
	var addrs []string
	for _, b := range k.brokers {
		addrs = append(addrs, b.node.more[name].advertised)
	}
	return addrs
}

// SetUser makes a user of SCRAM, or changes the password, for both mechanisms. Brokers know a moment later.
func (k *Kafka) SetUser(ctx context.Context, user, password string) error {
	admin, err := k.Admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, m := range []sarama.ScramMechanismType{sarama.SCRAM_MECHANISM_SHA_256, sarama.SCRAM_MECHANISM_SHA_512} { // one request takes a user once
		results, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{
			{Name: user, Mechanism: m, Iterations: 4096, Salt: []byte("salt of " + user), Password: []byte(password)}})
		if err != nil {
			return fmt.Errorf("making user %s: %w", user, err)
		}
		for _, r := range results {
			if r.ErrorCode != sarama.ErrNoError {
				return fmt.Errorf("making user %s: %w", user, r.ErrorCode)
			}
		}
	}
	return ctx.Err()
}

// ACL is a right of a user: an operation on a resource.
type ACL struct {
	User string
	// Resource is topic, group, cluster or transactional-id, and Name which; of the cluster always kafka-cluster.
	Resource, Name string
	// Prefixed gives the right on all names that begin with Name.
	Prefixed  bool
	Operation sarama.AclOperation
	Deny      bool
}

func (a ACL) resource() (sarama.Resource, sarama.Acl) {
	kinds := map[string]sarama.AclResourceType{"topic": sarama.AclResourceTopic, "group": sarama.AclResourceGroup, "cluster": sarama.AclResourceCluster, "transactional-id": sarama.AclResourceTransactionalID}
	name := a.Name
	if a.Resource == "cluster" {
		name = "kafka-cluster"
	}
	permission := sarama.AclPermissionAllow
	if a.Deny {
		permission = sarama.AclPermissionDeny
	}
	pattern := sarama.AclPatternLiteral
	if a.Prefixed {
		pattern = sarama.AclPatternPrefixed
	}
	return sarama.Resource{ResourceType: kinds[a.Resource], ResourceName: name, ResourcePatternType: pattern},
		sarama.Acl{Principal: "User:" + a.User, Host: "*", Operation: a.Operation, PermissionType: permission}
}

// Grant gives rights to users of the authorizer.
func (k *Kafka) Grant(acls ...ACL) error {
	admin, err := k.Admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, a := range acls {
		resource, acl := a.resource()
		if err := admin.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: []*sarama.Acl{&acl}}}); err != nil {
			return fmt.Errorf("granting %+v: %w", a, err)
		}
	}
	return nil
}

// Revoke takes rights back.
func (k *Kafka) Revoke(acls ...ACL) error {
	admin, err := k.Admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, a := range acls {
		resource, acl := a.resource()
		filter := sarama.AclFilter{ResourceType: resource.ResourceType, ResourceName: &resource.ResourceName, ResourcePatternTypeFilter: resource.ResourcePatternType,
			Principal: &acl.Principal, Host: &acl.Host, Operation: acl.Operation, PermissionType: acl.PermissionType}
		gone, err := admin.DeleteACL(filter, false)
		if err != nil {
			return fmt.Errorf("revoking %+v: %w", a, err)
		}
		if len(gone) == 0 {
			return fmt.Errorf("revoking %+v: there is no such ACL", a)
		}
	}
	return nil
}

// UnsecuredToken is a token without a signature for OAUTHBEARER (RFC 7519, section 6), valid until a time.
func UnsecuredToken(user string, until time.Time) string {
	part := func(v map[string]any) string {
		raw, _ := json.Marshal(v) // never fails
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	claims := map[string]any{"sub": user, "iat": time.Now().Add(-time.Hour).Unix(), "exp": until.Unix()}
	return part(map[string]any{"alg": "none"}) + "." + part(claims) + "."
}
