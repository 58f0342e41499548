// Package conn opens connections to brokers: TCP, TLS, SASL and the choice of versions, each connection a sarama.Broker of its own whose
// net.Conn can be closed at once. It does not know clusters: whom to connect to, and what to do when a connection is lost, is the caller's.
package conn
