// The client of HiveMQ behind the streams described in ../README.md.

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttClientSslConfig;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.MqttWebSocketConfig;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5ConnAckException;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.concurrent.CompletionException;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.TrustManagerFactory;

final class HiveMqClient {
    private static final char[] NO_PASSWORD = new char[0];

    private static Mqtt5AsyncClient client;

    public static void main(String[] arguments) throws Exception {
        var input = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        var lines = new BufferedReader(input);
        for (String line; (line = lines.readLine()) != null; ) {
            try {
                handle(JsonParser.parseString(line).getAsJsonObject());
            } catch (CompletionException error) {
                if (error.getCause() instanceof Mqtt5ConnAckException refusal) {
                    var event = event("refused");
                    event.addProperty("code", refusal.getMqttMessage().getReasonCode().getCode());
                    tell(event);
                } else {
                    fail(error.getCause());
                }
            } catch (Exception error) {
                fail(error);
            }
        }
        // Its threads are not daemons.
        System.exit(0);
    }

    private static void handle(JsonObject command) throws Exception {
        switch (command.get("do").getAsString()) {
            case "connect" -> connect(command);
            case "subscribe" -> {
                var filter = command.get("filter").getAsString();
                var answer = client.subscribeWith().topicFilter(filter).qos(qos(command)).send();
                var event = event("subscribed");
                event.addProperty("code", answer.join().getReasonCodes().get(0).getCode());
                tell(event);
            }
            case "unsubscribe" -> {
                var filter = command.get("filter").getAsString();
                client.unsubscribeWith().topicFilter(filter).send().join();
                tell(event("unsubscribed"));
            }
            case "publish" -> {
                var result = client.publishWith()
                        .topic(command.get("topic").getAsString())
                        .payload(command.get("payload").getAsString().getBytes(StandardCharsets.UTF_8))
                        .qos(qos(command))
                        .retain(command.get("retain").getAsBoolean())
                        .send()
                        .join();
                if (result.getError().isPresent()) {
                    fail(result.getError().get());
                } else {
                    tell(event("published"));
                }
            }
            case "disconnect" -> {
                client.disconnect().join();
                tell(event("disconnected"));
            }
            default -> throw new IllegalArgumentException(command.toString());
        }
    }

    private static void connect(JsonObject command) throws Exception {
        if (!command.get("version").getAsString().equals("5.0")) {
            throw new IllegalArgumentException("this program speaks 5.0");
        }
        var scheme = command.has("scheme") ? command.get("scheme").getAsString() : "mqtt";
        var builder = MqttClient.builder()
                .useMqttVersion5()
                .identifier(command.get("id").getAsString())
                .serverHost("localhost")
                .serverPort(command.get("port").getAsInt());
        if (scheme.startsWith("ws")) {
            builder = builder.webSocketConfig(MqttWebSocketConfig.builder().serverPath("mqtt").build());
        }
        if (scheme.equals("mqtts") || scheme.equals("wss")) {
            builder = builder.sslConfig(tls(command));
        }
        client = builder.buildAsync();
        client.publishes(MqttGlobalPublishFilter.ALL, HiveMqClient::received);
        var clean = command.get("clean").getAsBoolean();
        var answer = client.connectWith()
                .cleanStart(clean)
                .sessionExpiryInterval(clean ? 0 : 3600)
                .send()
                .join();
        var event = event("connected");
        event.addProperty("session", answer.isSessionPresent());
        tell(event);
    }

    private static MqttClientSslConfig tls(JsonObject command) throws Exception {
        var authorities = KeyStore.getInstance(KeyStore.getDefaultType());
        authorities.load(null, null);
        authorities.setCertificateEntry("authority", certificate(command.get("ca").getAsString()));
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(authorities);
        var config = MqttClientSslConfig.builder().trustManagerFactory(trust);
        if (command.has("cert")) {
            var own = KeyStore.getInstance(KeyStore.getDefaultType());
            own.load(null, null);
            var text = Files.readString(Path.of(command.get("key").getAsString()));
            var encoded = Base64.getMimeDecoder().decode(text.replaceAll("-----[A-Z ]+-----", ""));
            var key = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(encoded));
            var chain = new Certificate[] {certificate(command.get("cert").getAsString())};
            own.setKeyEntry("own", key, NO_PASSWORD, chain);
            var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keys.init(own, NO_PASSWORD);
            config = config.keyManagerFactory(keys);
        }
        return config.build();
    }

    private static Certificate certificate(String file) throws Exception {
        try (InputStream input = Files.newInputStream(Path.of(file))) {
            return CertificateFactory.getInstance("X.509").generateCertificate(input);
        }
    }

    private static void received(Mqtt5Publish message) {
        var event = event("message");
        event.addProperty("topic", message.getTopic().toString());
        event.addProperty("payload", new String(message.getPayloadAsBytes(), StandardCharsets.UTF_8));
        event.addProperty("qos", message.getQos().getCode());
        event.addProperty("retain", message.isRetain());
        tell(event);
    }

    private static MqttQos qos(JsonObject command) {
        return MqttQos.fromCode(command.get("qos").getAsInt());
    }

    private static JsonObject event(String name) {
        var event = new JsonObject();
        event.addProperty("event", name);
        return event;
    }

    private static void fail(Throwable error) {
        var event = event("error");
        event.addProperty("text", error.toString());
        tell(event);
    }

    private static synchronized void tell(JsonObject event) {
        System.out.println(event);
        System.out.flush();
    }
}
