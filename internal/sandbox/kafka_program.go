package sandbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// KafkaVersion is the version of the brokers that StartKafka starts.
const KafkaVersion = "4.3.1"

// The library that Kafka logs with.
const (
	logging        = "org.apache.logging.log4j"
	loggingVersion = "2.25.3"
)

const kafkaLogging = `status=warn
appender.console.type=Console
appender.console.name=C
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %m (%c)%n%ex{2}
rootLogger.level=warn
rootLogger.appenderRef.c.ref=C
logger.start.name=kafka.server.KafkaRaftServer
logger.start.level=info
`

// kafkaStarted is the broker's own last word of a start.
const kafkaStarted = "Kafka Server started"

// kafkaProgram is Kafka as fetched, and a Java to run it.
type kafkaProgram struct {
	java    string
	root    string // lib, log4j2.properties, data (a formatted folder to copy)
	archive string // class-data-sharing archive, "" without
}

// findKafka returns Kafka from the cache, fetched with Maven on first use.
func findKafka(ctx context.Context, say func(string)) (*kafkaProgram, error) {
	java, id, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	k := &kafkaProgram{java: java}
	key := "kafka-" + KafkaVersion + "-2"
	k.root, err = cached(ctx, key, say, func(dir string) error {
		say("fetching Kafka " + KafkaVersion + " with Maven (about 55 MB)")
		err := fetchArtifacts(ctx, dir, filepath.Join(dir, "lib"), say,
			artifact{group: "org.apache.kafka", id: "kafka_2.13", version: KafkaVersion},
			artifact{group: "org.apache.kafka", id: "kafka-tools", version: KafkaVersion},
			// Without log4j on the class path the broker does not even start.
			artifact{group: logging, id: "log4j-core", version: loggingVersion},
			artifact{group: logging, id: "log4j-slf4j-impl", version: loggingVersion})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "log4j2.properties"), []byte(kafkaLogging), 0o644); err != nil {
			return err
		}
		unfinished := &kafkaProgram{java: java, root: dir}
		return unfinished.format(ctx, dir, "data", nil)
	})
	if err != nil {
		return nil, err
	}
	shared, err := cached(ctx, key+"-classes-"+id, say, func(dir string) error {
		say("preparing Kafka's classes for faster starts")
		err := k.archiveClasses(ctx, filepath.Join(dir, "kafka.jsa"))
		if err != nil && ctx.Err() == nil {
			say("Kafka will start without them: " + err.Error())
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("preparing Kafka's classes: %w", err)
	}
	if archive := filepath.Join(shared, "kafka.jsa"); exists(archive) {
		k.archive = archive
	}
	return k, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// command returns a run of a Java class of Kafka's.
func (k *kafkaProgram) command(flags []string, class string, args ...string) (*exec.Cmd, error) {
	// Named one by one: a class archive holds only for exactly the same class path.
	jars, err := filepath.Glob(filepath.Join(k.root, "lib", "*.jar"))
	if err != nil {
		return nil, err
	}
	all := []string{"-XX:+UseSerialGC", "-Dlog4j2.configurationFile=" + filepath.Join(k.root, "log4j2.properties")}
	all = append(append(all, flags...), "-cp", strings.Join(jars, ":"), class)
	return exec.Command(k.java, append(all, args...)...), nil
}

// format prepares a node's data folder dir/data with the storage tool, a run of Java.
func (k *kafkaProgram) format(ctx context.Context, dir, data string, formatArgs []string) error {
	config := filepath.Join(dir, "format.properties")
	node := nodeConfig{id: 1, data: filepath.Join(dir, data), client: "127.0.0.1:1", internal: "127.0.0.1:2",
		advertised: "127.0.0.1:1", controller: "127.0.0.1:3", voters: "1@127.0.0.1:3", nodes: 1}
	if err := os.WriteFile(config, []byte(node.properties(nil)), 0o644); err != nil {
		return err
	}
	cmd, err := k.command([]string{"-XX:TieredStopAtLevel=1"}, "kafka.tools.StorageTool",
		append([]string{"format", "-t", "sandboxsandboxsandboxQ", "-c", config}, formatArgs...)...)
	if err != nil {
		return err
	}
	if _, err := runTool(ctx, cmd); err != nil {
		return fmt.Errorf("formatting Kafka's data folder: %w", err)
	}
	return os.Remove(config)
}

// archiveClasses starts a broker once and has the JVM write down its loaded classes on
// exit. Measured: it halves the time and the CPU of a start. A JVM that cannot do it
// leaves no archive, which is fine.
func (k *kafkaProgram) archiveClasses(ctx context.Context, archive string) error {
	cluster, err := newKafka(k, KafkaOptions{JVMFlags: []string{"-XX:ArchiveClassesAtExit=" + archive}})
	if err != nil {
		return err
	}
	defer cluster.Close()
	if err := cluster.Start(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return cluster.Stop(ctx)
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// findJava returns the Java of the PATH, 17 or newer, and an id that changes with it.
func findJava(ctx context.Context) (java, id string, err error) {
	missing := &MissingError{Need: "Java 17 or newer (command java)", For: "Kafka", Remedy: "install a Java runtime"}
	java, err = exec.LookPath("java")
	if err != nil {
		return "", "", missing
	}
	javaOutput.Lock()
	defer javaOutput.Unlock()
	out := javaOutput.of[java]
	if out == "" {
		if out, err = runTool(ctx, exec.Command(java, "-version")); err != nil {
			return "", "", fmt.Errorf("asking Java for its version: %w", err)
		}
		javaOutput.of[java] = out
	}
	if m := javaVersion.FindStringSubmatch(out); m == nil {
		return "", "", missing
	} else if major, _ := strconv.Atoi(m[1]); major < 17 {
		missing.Remedy = "this one is Java " + m[1]
		return "", "", missing
	}
	return java, fmt.Sprintf("%x", sha256.Sum256([]byte(java+"\n"+out)))[:12], nil
}

// javaOutput remembers what each java said of its version; asking costs a JVM start.
var javaOutput = struct {
	sync.Mutex
	of map[string]string
}{of: map[string]string{}}
