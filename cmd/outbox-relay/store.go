package main

import (
	"context"
	"log/slog"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/filestore"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/checkpoint/mysqlstore"
	"outbox-relay/config"
	"outbox-relay/relay/kafka/conn"
)

// openStore opens the checkpoint store that is configured. checkpoint.ErrHeld means that another process has it.
func openStore(cfg *config.Config, log *slog.Logger) (checkpoint.Store, error) {
	switch cfg.Checkpoint.Store {
	case config.StoreMySQL:
		return mysqlstore.Open(mysqlOptions(cfg))
	case config.StoreKafka:
		return kafkastore.Open(kafkaStoreOptions(cfg, log))
	}
	return filestore.Open(filestore.Options{Path: cfg.Checkpoint.Path, Name: cfg.Name, Layer: layer})
}

// readTimeout bounds a look at the checkpoint of another process.
const readTimeout = 15 * time.Second

// readCheckpoint looks at the checkpoint whether or not a relay runs. Its errors are those of checkpoint.Store.Load.
func readCheckpoint(ctx context.Context, cfg *config.Config) (*checkpoint.Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	switch cfg.Checkpoint.Store {
	case config.StoreFile:
		return filestore.Read(cfg.Checkpoint.Path, cfg.Name)
	case config.StoreKafka:
		o := kafkaStoreOptions(cfg, nil)
		o.Timeout = readTimeout / 2 // so that the error is what is wrong, and not that time is up
		return kafkastore.Read(ctx, o)
	}
	s, err := mysqlstore.Open(mysqlOptions(cfg))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Load(ctx)
}

// probeCheckpoint tells whether a checkpoint in a table could be saved; nil for other places, which are looked at otherwise.
func probeCheckpoint(cfg *config.Config) func(context.Context) error {
	if cfg.Checkpoint.Store != config.StoreMySQL {
		return nil
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		s, err := mysqlstore.Open(mysqlOptions(cfg))
		if err != nil {
			return err
		}
		defer s.Close()
		return s.Probe(ctx)
	}
}

// placeOf names where the checkpoint is.
func placeOf(cfg *config.Config) string {
	switch cfg.Checkpoint.Store {
	case config.StoreMySQL:
		return "table " + cfg.Checkpoint.Table.String()
	case config.StoreKafka:
		return "topic " + cfg.Checkpoint.Topic
	}
	return cfg.Checkpoint.Path
}

// kafkaStoreOptions are for the topic of the checkpoint; the log may be nil.
func kafkaStoreOptions(cfg *config.Config, log *slog.Logger) kafkastore.Options {
	k := kafkaOptions(cfg)
	return kafkastore.Options{
		Name: cfg.Name, Topic: cfg.Checkpoint.Topic, Brokers: k.Brokers, Conn: conn.Options{ClientID: k.ClientID, TLS: k.TLS, SASL: k.SASL},
		TransactionTimeout: cfg.Kafka.TransactionTimeout, Logger: log,
	}
}

func mysqlOptions(cfg *config.Config) mysqlstore.Options {
	o := mysqlstore.Options{
		Name: cfg.Name, Schema: cfg.Checkpoint.Table.Schema, Table: cfg.Checkpoint.Table.Table, Program: "outbox-relay " + cfg.Name + " checkpoint",
		Addresses: cfg.Source.Addresses, User: cfg.Source.User, Password: cfg.Source.Password.Read, TLS: cfg.Source.TLS.Config,
		TLSOptional: cfg.Source.TLS.Mode == config.TLSPreferred,
	}
	if k := cfg.Checkpoint; len(k.Addresses) > 0 {
		o.Addresses, o.User, o.Password, o.TLS, o.TLSOptional = k.Addresses, k.User, k.Password.Read, k.TLS.Config, k.TLS.Mode == config.TLSPreferred
	}
	return o
}

// ownTable is the checkpoint table where it may be on the source. On another server nothing of that name is the relay's, and a table of that name
// on the source is somebody else's.
func ownTable(cfg *config.Config) binlog.TableName {
	if cfg.Checkpoint.Store != config.StoreMySQL || len(cfg.Checkpoint.Addresses) > 0 {
		return binlog.TableName{}
	}
	return binlog.TableName{Schema: cfg.Checkpoint.Table.Schema, Name: cfg.Checkpoint.Table.Table}
}
