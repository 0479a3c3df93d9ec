package org.apache.iceberg.encryption;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;

/**
 * Opens what Iceberg keeps package-private, and hides what differs between its versions.
 *
 * <p>1.10 knows no file length in the key metadata and takes none for an input file; later versions do. Reflection
 * lets one source build against both.
 */
public final class Ags1Bridge {
  /** The decoded fields of a StandardKeyMetadata; a version without file lengths always says null. */
  public record Fields(byte[] key, byte[] aadPrefix, Long fileLength) {}

  private Ags1Bridge() {}

  /** Whether this version takes a trusted length for an encrypted input file. */
  public static boolean takesLength() {
    return lengthConstructor(AesGcmInputFile.class, InputFile.class) != null;
  }

  public static OutputFile outputFile(OutputFile target, byte[] key, byte[] aadPrefix) {
    return new AesGcmOutputFile(target, key, aadPrefix);
  }

  public static InputFile inputFile(InputFile source, byte[] key, byte[] aadPrefix, Long length)
      throws Exception {
    Constructor<?> constructor = lengthConstructor(AesGcmInputFile.class, InputFile.class);
    if (constructor == null) {
      return new AesGcmInputFile(source, key, aadPrefix);
    }
    return (InputFile) unwrap(() -> constructor.newInstance(source, key, aadPrefix, length));
  }

  public static byte[] encode(byte[] key, byte[] aadPrefix, Long length) throws Exception {
    if (length == null) {
      return bytes(new StandardKeyMetadata(key, aadPrefix).buffer());
    }
    Constructor<StandardKeyMetadata> constructor = metadataConstructor();
    if (constructor == null) {
      throw new UnsupportedOperationException("This version has no file length in its key metadata");
    }
    return bytes(unwrap(() -> constructor.newInstance(key, aadPrefix, length)).buffer());
  }

  public static Fields decode(byte[] encoded) throws Exception {
    StandardKeyMetadata metadata = StandardKeyMetadata.parse(ByteBuffer.wrap(encoded));
    Long length = null;
    if (metadataConstructor() != null) {
      Method fileLength = StandardKeyMetadata.class.getDeclaredMethod("fileLength");
      length = (Long) unwrap(() -> fileLength.invoke(metadata));
    }
    return new Fields(bytes(metadata.encryptionKey()), bytes(metadata.aadPrefix()), length);
  }

  /** The key metadata of a finished file; from the version on that has file lengths, with that length. */
  public static byte[] withLength(ByteBuffer encoded, long length) throws Exception {
    byte[] plain = bytes(encoded);
    if (metadataConstructor() == null) {
      return plain;
    }
    Fields fields = decode(plain);
    return encode(fields.key(), fields.aadPrefix(), length);
  }

  /** An encryption manager without keys: later versions want the table's key list, 1.10 has no place for it. */
  public static StandardEncryptionManager manager(int keyLength, KeyManagementClient client) throws Exception {
    for (Constructor<?> constructor : StandardEncryptionManager.class.getConstructors()) {
      if (constructor.getParameterCount() == 4 && constructor.getParameterTypes()[0] == List.class) {
        return (StandardEncryptionManager) unwrap(() -> constructor.newInstance(List.of(), "unused", keyLength, client));
      }
    }
    return unwrap(
        () ->
            StandardEncryptionManager.class
                .getConstructor(String.class, int.class, KeyManagementClient.class)
                .newInstance("unused", keyLength, client));
  }

  public static byte[] bytes(ByteBuffer buffer) {
    if (buffer == null) {
      return null;
    }
    byte[] copy = new byte[buffer.remaining()];
    buffer.duplicate().get(copy);
    return copy;
  }

  private static Constructor<StandardKeyMetadata> metadataConstructor() {
    try {
      return StandardKeyMetadata.class.getDeclaredConstructor(byte[].class, byte[].class, Long.class);
    } catch (NoSuchMethodException e) {
      return null;
    }
  }

  private static Constructor<?> lengthConstructor(Class<?> type, Class<?> source) {
    try {
      return type.getDeclaredConstructor(source, byte[].class, byte[].class, Long.class);
    } catch (NoSuchMethodException e) {
      return null;
    }
  }

  private interface Call<T> {
    T run() throws ReflectiveOperationException;
  }

  private static <T> T unwrap(Call<T> call) throws Exception {
    try {
      return call.run();
    } catch (InvocationTargetException e) {
      if (e.getCause() instanceof Exception cause) {
        throw cause;
      }
      throw e;
    }
  }
}
