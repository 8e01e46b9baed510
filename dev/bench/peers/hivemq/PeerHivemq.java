import com.hivemq.embedded.EmbeddedHiveMQ;
import java.nio.file.Files;
import java.nio.file.Path;

/** Serves MQTT with HiveMQ CE on a port of the loopback, for `cargo xtask bench brokers`. */
public final class PeerHivemq {
    public static void main(final String[] arguments) throws Exception {
        if (arguments.length == 1 && arguments[0].equals("--version")) {
            System.out.println(
                    "HiveMQ CE " + EmbeddedHiveMQ.class.getPackage().getImplementationVersion()
                            + ", Java " + Runtime.version());
            return;
        }
        // The benchmark starts every peer in a directory of its own.
        final Path directory = Path.of("").toAbsolutePath();
        final Path configuration = Files.createDirectories(directory.resolve("conf"));
        Files.writeString(configuration.resolve("config.xml"), configuration(arguments[0]));
        EmbeddedHiveMQ.builder()
                .withConfigurationFolder(configuration)
                .withDataFolder(Files.createDirectories(directory.resolve("data")))
                .withExtensionsFolder(Files.createDirectories(directory.resolve("extensions")))
                .build()
                .start()
                .join();
    }

    private static String configuration(final String port) {
        return """
                <?xml version="1.0"?>
                <hivemq>
                  <listeners>
                    <tcp-listener>
                      <port>%d</port>
                      <bind-address>127.0.0.1</bind-address>
                    </tcp-listener>
                  </listeners>
                  <mqtt>
                    <queued-messages>
                      <max-queue-size>1000000</max-queue-size>
                    </queued-messages>
                    <receive-maximum>
                      <server-receive-maximum>65535</server-receive-maximum>
                    </receive-maximum>
                  </mqtt>
                  <persistence>
                    <mode>in-memory</mode>
                  </persistence>
                  <anonymous-usage-statistics>
                    <enabled>false</enabled>
                  </anonymous-usage-statistics>
                </hivemq>
                """.formatted(Integer.parseInt(port));
    }
}
