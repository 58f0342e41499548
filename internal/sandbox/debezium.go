package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// DebeziumVersion is the version of the connector that ConnectCommand runs.
const DebeziumVersion = "3.6.1.Final"

// connectFlags are those of Kafka's own script connect-standalone.sh.
var connectFlags = []string{
	"-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
}

// ConnectCommand returns a standalone Kafka Connect with Debezium's MySQL connector, which is fetched with Maven on first use. worker and connector
// are paths of its two properties files. The command is not started; whoever starts it ends it. ctx bounds only this call; say gets a line about
// each slow step.
func ConnectCommand(ctx context.Context, say func(string), worker, connector string) (*exec.Cmd, error) {
	java, _, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	root, err := cached(ctx, "debezium-"+DebeziumVersion+"-1", say, func(dir string) error {
		say("fetching Debezium " + DebeziumVersion + " with Maven (about 45 MB)")
		const debezium = "io.debezium"
		err := fetchArtifacts(ctx, dir, filepath.Join(dir, "lib"), say,
			artifact{group: debezium, id: "debezium-connector-mysql", version: DebeziumVersion},
			// It brings Kafka Connect, in the version that Debezium is built with.
			artifact{group: debezium, id: "debezium-embedded", version: DebeziumVersion},
			artifact{group: debezium, id: "debezium-api", version: DebeziumVersion},
			artifact{group: logging, id: "log4j-core", version: loggingVersion},
			artifact{group: logging, id: "log4j-slf4j-impl", version: loggingVersion})
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "log4j2.properties"), []byte(kafkaLogging), 0o644)
	})
	if err != nil {
		return nil, fmt.Errorf("preparing Debezium: %w", err)
	}
	args := append([]string{"-Dlog4j2.configurationFile=" + filepath.Join(root, "log4j2.properties")}, connectFlags...)
	args = append(args, "-cp", filepath.Join(root, "lib", "*"), "org.apache.kafka.connect.cli.ConnectStandalone", worker, connector)
	return exec.Command(java, args...), nil
}
