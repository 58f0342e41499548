package conn

import "github.com/IBM/sarama"

// NewSCRAM256 makes the client side of SCRAM-SHA-256 with a given nonce.
func NewSCRAM256(nonce string) func(user, password string) sarama.SCRAMClient {
	return func(user, password string) sarama.SCRAMClient {
		s := newSCRAM256()
		if err := s.Begin(user, password, ""); err != nil {
			panic(err)
		}
		s.nonce = nonce
		return s
	}
}
